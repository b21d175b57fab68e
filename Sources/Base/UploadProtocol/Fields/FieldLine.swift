// Parses a field as people write it: a name, a colon, a value.

package import HTTPTypes
import SpoolgateTextFormats

extension HTTPField {
    /// Parses `Name: value`; nil if the text is not a valid field (RFC 9110 §5.5) or contains a line break.
    package init?(line: String) {
        let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2, let name = Name(String(parts[0])) else { return nil }
        let value = String(parts[1].withoutOuterWhitespace)
        guard HTTPField.isValidValue(value) else { return nil }
        self.init(name: name, value: value)
    }
}
