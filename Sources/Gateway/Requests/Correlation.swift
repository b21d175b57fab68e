// The field by which one request can be followed through several logs.
//
// A client's value is taken where it is harmless, else one is made. Invariant: where the setting names
// a field, every request has exactly one value of it, of 1 to 128 visible ASCII characters.

import HTTPTypes
import SpoolgateCrypto

extension HTTPFields {
    private static let correlationLimit = 128

    /// Sees to it that the field `name` has one usable value; returns that.
    mutating func correlate(by name: HTTPField.Name) -> String {
        if let value = self[name], Self.isCorrelation(value) { return value }
        let value = RandomToken.make()
        self[name] = value
        return value
    }

    private static func isCorrelation(_ value: String) -> Bool {
        // A repeated field has a comma and a space between its values.
        !value.isEmpty && value.utf8.count <= correlationLimit
            && value.utf8.allSatisfy { (0x21...0x7e).contains($0) }
    }
}
