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

    /// The value as compact text on one line, without a line end.
    package var text: String {
        var text = ""
        write(to: &text)
        return text
    }

    /// Member-wise equality; the order of an object's members counts.
    package static func == (one: JSON, other: JSON) -> Bool { one.text == other.text }

    private func write(to text: inout String) {
        switch self {
        case .string(let string):
            JSON.write(string, to: &text)
        case .integer(let integer):
            text += String(integer)
        case .boolean(let boolean):
            text += boolean ? "true" : "false"
        case .null:
            text += "null"
        case .array(let values):
            text += "["
            for (position, value) in values.enumerated() {
                if position > 0 { text += "," }
                value.write(to: &text)
            }
            text += "]"
        case .object(let members):
            text += "{"
            for (position, member) in members.enumerated() {
                if position > 0 { text += "," }
                JSON.write(member.name, to: &text)
                text += ":"
                member.value.write(to: &text)
            }
            text += "}"
        }
    }

    private static func write(_ string: String, to text: inout String) {
        text += "\""
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
        text += "\""
    }
}
