// JSON text (RFC 8259) written from ordered members. Nothing is read here.
//
// Invariant: the text is one line of valid JSON, whatever the strings hold.

/// One JSON value.
package enum JSON: Sendable, Equatable {
    /// A string; any Unicode text.
    case string(String)
    /// An integer.
    case integer(Int64)
    /// A Boolean.
    case boolean(Bool)
    /// The null value.
    case null
    /// An array.
    case array([JSON])
    /// An object, its members in this order.
    case object([(name: String, value: JSON)])

    /// An object of a command's, for programs: first the version of what its members mean; members are added
    /// without a new one.
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

    /// Member-wise equality; the order of an object's members counts.
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
            // Most of them are legal in JSON, but lines of it are read on terminals.
            case _ where scalar.isUnprintable: text += scalar.escaped
            default: text.unicodeScalars.append(scalar)
            }
        }
        return text + "\""
    }
}
