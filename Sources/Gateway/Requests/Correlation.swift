// The field that identifies a request across several logs.
//
// A valid value from the client is used; otherwise one is generated. Invariant: if the settings name a field, every
// request has exactly one value for it, of 1 to 128 visible ASCII characters.

import HTTPTypes
import SpoolgateCrypto

extension HTTPFields {
    private static let correlationLimit = 128

    /// Ensures that the field `name` has exactly one valid value, and returns the value.
    mutating func correlate(by name: HTTPField.Name) -> String {
        if let value = self[name], Self.isCorrelation(value) { return value }
        let value = RandomToken.make()
        self[name] = value
        return value
    }

    private static func isCorrelation(_ value: String) -> Bool {
        // A repeated field is invalid because its values are joined by a comma and a space.
        !value.isEmpty && value.utf8.count <= correlationLimit
            && value.utf8.allSatisfy { (0x21...0x7e).contains($0) }
    }
}
