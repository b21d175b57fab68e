// The identifier of one upload: 128 random bits in 26 characters.
//
// No other text from a client becomes part of a file name. Invariant: an identifier has exactly one spelling.

/// An upload's identifier, unguessable and never reused (draft-12 §4, §13).
package struct UploadID: Hashable, Sendable, CustomStringConvertible {
    private let high: UInt64
    private let low: UInt64

    package static let characterCount = 26

    /// Creates an identifier from 128 random bits.
    package init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// Parses the 26-character form; returns nil for any other text, including upper case.
    package init?(_ text: some StringProtocol) {
        self.init(bytes: text.utf8)
    }

    /// Parses the 26-character form from its bytes; returns nil for any other bytes.
    package init?(bytes: some Collection<UInt8>) {
        var (high, low): (UInt64, UInt64) = (0, 0)
        var count = 0
        var last: UInt8 = 0
        for byte in bytes {
            switch byte {
            case UInt8(ascii: "0")...UInt8(ascii: "9"): last = byte - UInt8(ascii: "0")
            case UInt8(ascii: "a")...UInt8(ascii: "v"): last = byte - UInt8(ascii: "a") + 10
            default: return nil
            }
            count += 1
            guard count <= UploadID.characterCount else { return nil }
            // The first 25 characters carry five bits each; the last carries three, and two bits of padding.
            if count < UploadID.characterCount {
                (high, low) = (high << 5 | low >> 59, low << 5 | UInt64(last))
            } else {
                (high, low) = (high << 3 | low >> 61, low << 3 | UInt64(last >> 2))
            }
        }
        guard count == UploadID.characterCount, last & 3 == 0 else { return nil }
        (self.high, self.low) = (high, low)
    }

    /// The identifier as 26 characters from `0-9a-v` (RFC 4648 §7, lower case, no padding).
    package var description: String {
        String(unsafeUninitializedCapacity: Self.characterCount) { characters in
            write(to: characters)
            return Self.characterCount
        }
    }

    /// Calls `body` with the 26 characters.
    ///
    /// The function is not generic, because a generic result would be three times as slow.
    package func withCharacters(_ body: (UnsafeBufferPointer<UInt8>) -> Void) {
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: Self.characterCount) { characters in
            write(to: characters)
            body(UnsafeBufferPointer(characters))
        }
    }

    private static let digits: StaticString = "0123456789abcdefghijklmnopqrstuv"

    private func write(to characters: UnsafeMutableBufferPointer<UInt8>) {
        var (high, low) = (high, low)
        let digits = Self.digits.utf8Start
        for position in 0..<Self.characterCount {
            characters[position] = digits[Int(high >> 59)]
            (high, low) = (high << 5 | low >> 59, low << 5)
        }
    }
}
