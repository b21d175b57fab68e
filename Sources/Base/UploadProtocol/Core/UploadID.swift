// The name of one upload: 128 random bits, written as 26 characters.
//
// Nothing else a client sends ever becomes part of a file name. Invariant: one identity has exactly
// one spelling.

/// The identity of one upload, unguessable and never used twice (draft-12 §4, §13).
package struct UploadID: Hashable, Sendable, CustomStringConvertible {
    private let high: UInt64
    private let low: UInt64

    /// How many characters the written form has.
    package static let characterCount = 26

    /// Makes an identity from 128 random bits.
    package init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// Reads the 26-character form; nil for anything else, upper case and other spellings included.
    package init?(_ text: some StringProtocol) {
        self.init(bytes: text.utf8)
    }

    /// Reads the 26-character form from its bytes; nil for anything else.
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
            // 25 characters bring five bits each, the last one three and two of padding.
            if count < UploadID.characterCount {
                (high, low) = (high << 5 | low >> 59, low << 5 | UInt64(last))
            } else {
                (high, low) = (high << 3 | low >> 61, low << 3 | UInt64(last >> 2))
            }
        }
        guard count == UploadID.characterCount, last & 3 == 0 else { return nil }
        (self.high, self.low) = (high, low)
    }

    /// 26 characters of `0-9a-v` (RFC 4648 §7, lower case, no padding).
    package var description: String {
        String(unsafeUninitializedCapacity: Self.characterCount) { characters in
            write(to: characters)
            return Self.characterCount
        }
    }

    /// Calls `body` with the 26 characters.
    ///
    /// Not generic: for a result of any type it would cost three times as much.
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
