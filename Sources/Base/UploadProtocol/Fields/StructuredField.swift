// Items of structured fields (RFC 9651) as the protocol needs them: Integer and Boolean.
//
// The protocol ignores a field of the wrong type or spelling as if it were absent (draft-12
// §4.1.1 to §4.1.3), so nothing here is an error. A repeated field line makes a list of the item,
// which is the wrong type too (RFC 9651 §4.2). Invariant: no bytes of a field can trap.

package import HTTPTypes
import RawStructuredFieldValues
import SpoolgateTextFormats

/// Reads Items of structured fields (RFC 9651 §3.3); nil stands for every field to be ignored.
package enum StructuredField {
    /// The greatest Integer a structured field can hold (RFC 9651 §3.3.1).
    package static let maxInteger: Int64 = 999_999_999_999_999

    /// The Integer in one field value; parameters are ignored.
    package static func integer(_ value: String) -> Int64? {
        // What clients send, without the cost of the whole grammar.
        if value.utf8.count <= 15, let integer = Int64(digits: value) { return integer }
        guard case .integer(let integer)? = item(value) else { return nil }
        return integer
    }

    /// The Boolean in one field value; parameters are ignored.
    package static func boolean(_ value: String) -> Bool? {
        switch value {
        case "?1": return true
        case "?0": return false
        default:
            guard case .bool(let boolean)? = item(value) else { return nil }
            return boolean
        }
    }

    /// The Integer in the field `name`; nil if it is absent, repeated or no Integer Item.
    package static func integer(_ name: HTTPField.Name, in fields: HTTPFields) -> Int64? {
        var value: String?
        for field in fields where field.name == name {
            guard value == nil else { return nil }
            value = field.value
        }
        return value.flatMap(integer(_:))
    }

    /// The Boolean in the field `name`; nil if it is absent, repeated or no Boolean Item.
    package static func boolean(_ name: HTTPField.Name, in fields: HTTPFields) -> Bool? {
        let values = fields.filter { $0.name == name }
        return values.count == 1 ? boolean(values[0].value) : nil
    }

    /// The Integers of a Dictionary in the field `name`; empty where it is absent, no Dictionary, or has a
    /// member of another type (draft-12 §4.1.4).
    package static func integers(_ name: HTTPField.Name, in fields: HTTPFields) -> [String: Int64] {
        guard let value = fields[name] else { return [:] }
        var parser = StructuredFieldValueParser(Array(value.utf8))
        // `try?`: whatever is wrong with the field, it is ignored.
        guard let members = try? parser.parseDictionaryFieldValue() else { return [:] }
        var integers: [String: Int64] = [:]
        for (key, member) in members {
            guard case .item(let item) = member, case .integer(let integer) = item.rfc9651BareItem
            else { return [:] }
            integers[key] = integer
        }
        return integers
    }

    private static func item(_ value: String) -> RFC9651BareItem? {
        var parser = StructuredFieldValueParser(Array(value.utf8))
        // `try?`: whatever is wrong with the field, it is ignored.
        return (try? parser.parseItemFieldValue())?.rfc9651BareItem
    }
}
