// The Items of structured fields (RFC 9651) that the protocol uses: Integer and Boolean.
//
// A field with a wrong type or syntax is ignored (draft-12 §4.1.1 to §4.1.3), as are repeated field lines, which form a
// List (RFC 9651 §4.2). Invariant: no field value can cause a trap.

package import HTTPTypes
import RawStructuredFieldValues
import SpoolgateTextFormats

/// Parses Items of structured fields (RFC 9651 §3.3); functions return nil if the field must be ignored.
package enum StructuredField {
    /// The largest Integer in structured fields (RFC 9651 §3.3.1).
    package static let maxInteger: Int64 = 999_999_999_999_999

    /// Parses an Integer from a field value, ignoring parameters; returns nil if the value is not an Integer.
    package static func integer(_ value: String) -> Int64? {
        // Avoids the full parser for the usual form.
        if value.utf8.count <= 15, let integer = Int64(digits: value) { return integer }
        guard case .integer(let integer)? = item(value) else { return nil }
        return integer
    }

    /// Parses a Boolean from a field value, ignoring parameters; returns nil if the value is not a Boolean.
    package static func boolean(_ value: String) -> Bool? {
        switch value {
        case "?1": return true
        case "?0": return false
        default:
            guard case .bool(let boolean)? = item(value) else { return nil }
            return boolean
        }
    }

    /// Returns the Integer in a field; nil if the field is missing, repeated or not an Integer Item.
    package static func integer(_ name: HTTPField.Name, in fields: HTTPFields) -> Int64? {
        var value: String?
        for field in fields where field.name == name {
            guard value == nil else { return nil }
            value = field.value
        }
        return value.flatMap(integer(_:))
    }

    /// Returns the Boolean in a field; nil if the field is missing, repeated or not a Boolean Item.
    package static func boolean(_ name: HTTPField.Name, in fields: HTTPFields) -> Bool? {
        let values = fields.filter { $0.name == name }
        return values.count == 1 ? boolean(values[0].value) : nil
    }

    /// Returns the Integers of the Dictionary in a field.
    ///
    /// The result is empty if the field is missing, is not a Dictionary, or has a member of another type (draft-12
    /// §4.1.4).
    package static func integers(_ name: HTTPField.Name, in fields: HTTPFields) -> [String: Int64] {
        guard let value = fields[name], var parser = parser(of: value),
            // `try?`: an invalid field is ignored.
            let members = try? parser.parseDictionaryFieldValue()
        else { return [:] }
        var integers: [String: Int64] = [:]
        for (key, member) in members {
            guard case .item(let item) = member, case .integer(let integer) = item.rfc9651BareItem
            else { return [:] }
            integers[key] = integer
        }
        return integers
    }

    private static func item(_ value: String) -> RFC9651BareItem? {
        guard var parser = parser(of: value) else { return nil }
        // `try?`: an invalid field is ignored.
        return (try? parser.parseItemFieldValue())?.rfc9651BareItem
    }

    /// Returns a parser of a field value, or nil if the value exceeds a limit and must be treated as malformed.
    ///
    /// Clients send such fields before they are authorized, and the library's work grows with the square of the number
    /// of members and parameters. The limits are 8 KiB, and 256 commas and semicolons.
    static func parser(of value: String) -> StructuredFieldValueParser<[UInt8]>? {
        let bytes = Array(value.utf8)
        guard bytes.count <= 8 << 10 else { return nil }
        let separators = bytes.count { $0 == UInt8(ascii: ",") || $0 == UInt8(ascii: ";") }
        return separators <= 256 ? StructuredFieldValueParser(bytes) : nil
    }
}
