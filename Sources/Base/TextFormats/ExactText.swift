// Texts that are compared by their bytes.
//
// Swift takes canonically equivalent strings for the same one, as `==`, as keys and in `contains`: "K" and U+212A (the
// Kelvin sign), "é" as one scalar and as two. For a person they look alike; for a web server, a password file and an
// application they are two users. Pure. Invariant: two of these are equal only if every byte is.

/// A name that tells one client from another, or anything else that two clients say and that must not be mixed up.
package struct ExactText: Hashable, Sendable, CustomStringConvertible, ExpressibleByStringLiteral {
    /// The text, for output.
    package let text: String

    /// Takes a text as it is.
    package init(_ text: String) { self.text = text }

    /// Takes a text of the program as it is.
    package init(stringLiteral text: String) { self.text = text }

    /// Whether their bytes are the same.
    package static func == (one: ExactText, other: ExactText) -> Bool {
        one.text.hasSameBytes(as: other.text)
    }

    /// The hash of its bytes.
    package func hash(into hasher: inout Hasher) {
        var text = text
        text.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
        // So that of two names one after the other no byte counts for the other one.
        hasher.combine(0xff as UInt8)
    }

    /// The text.
    package var description: String { text }
}

extension StringProtocol {
    /// Whether both have the same bytes in UTF-8.
    package func hasSameBytes(as other: some StringProtocol) -> Bool {
        let fast = utf8.withContiguousStorageIfAvailable { one in
            other.utf8.withContiguousStorageIfAvailable { one.equals($0) }
        }
        return fast.flatMap { $0 } ?? utf8.elementsEqual(other.utf8)
    }

    /// Whether its first bytes are those of `prefix`, also if a combining mark follows them.
    package func beginsWithBytes(of prefix: some StringProtocol) -> Bool {
        let fast = utf8.withContiguousStorageIfAvailable { bytes in
            prefix.utf8.withContiguousStorageIfAvailable { prefix in
                bytes.begins(with: prefix)
            }
        }
        return fast.flatMap { $0 } ?? utf8.starts(with: prefix.utf8)
    }
}

extension Dictionary where Key == String {
    /// The value under exactly this key, for keys that a client or another program names.
    package subscript(exactly key: String) -> Value? {
        guard let index = index(forKey: key), self[index].key.hasSameBytes(as: key) else {
            return nil
        }
        return self[index].value
    }
}
