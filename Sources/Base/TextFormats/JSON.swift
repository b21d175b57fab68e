// Writes JSON text (RFC 8259), but does not parse JSON.
//
// Invariant: the text is one line of valid JSON, regardless of the strings.

/// One JSON value.
package enum JSON: Sendable, Equatable {
    case string(String)
    case integer(Int64)
    case boolean(Bool)
    case null
    case array([JSON])
    /// An object, whose members stay in this order.
    case object([(name: String, value: JSON)])

    /// Returns a text, or null.
    package static func string(_ text: String?) -> JSON { text.map { .string($0) } ?? .null }

    /// Returns a number, or null.
    package static func integer(_ number: (some BinaryInteger)?) -> JSON {
        number.map { .integer(Int64($0)) } ?? .null
    }

    /// Returns an array of texts.
    package static func texts(_ texts: [String]) -> JSON { .array(texts.map { .string($0) }) }

    /// Returns an object that begins with the version of its format, for other programs to read.
    ///
    /// Adding members to the object does not change the version.
    package static func versioned(_ members: [(name: String, value: JSON)]) -> JSON {
        .object([("v", .integer(1))] + members)
    }

    /// The value as compact text on one line, without a line end.
    package var text: String {
        switch self {
        case .string(let string): JSON.quoted(string)
        case .integer(let integer): String(integer)
        case .boolean(let boolean): String(boolean)
        case .null: "null"
        case .array(let values): "[" + values.map(\.text).joined(separator: ",") + "]"
        case .object(let members):
            "{" + members.map { "\(JSON.quoted($0.name)):\($0.value.text)" }.joined(separator: ",")
                + "}"
        }
    }

    /// Whether both values have the same text, so that the order of members matters.
    package static func == (one: JSON, other: JSON) -> Bool { one.text == other.text }

    private static func quoted(_ string: String) -> String {
        var text = "\""
        for scalar in string.unicodeScalars {
            switch scalar {
            case "\"": text += "\\\""
            case "\\": text += "\\\\"
            case "\n": text += "\\n"
            case "\r": text += "\\r"
            case "\t": text += "\\t"
            // Most unprintable characters are valid in JSON, but people read the lines on terminals.
            case _ where scalar.isUnprintable: text += scalar.escaped
            default: text.unicodeScalars.append(scalar)
            }
        }
        return text + "\""
    }
}
