// Comparisons of texts by bytes.
//
// Swift treats canonically equivalent strings as equal in `==`, as keys and in `contains`, such as "K" and U+212A (the
// Kelvin sign), or "é" as one scalar and as two. A web server or an application treats such names as different users.

/// A text that is compared by its bytes, such as a client's name, so that no two clients are confused.
package struct ExactText: Hashable, Sendable, CustomStringConvertible, ExpressibleByStringLiteral {
    package let text: String

    /// Creates a value from a text.
    package init(_ text: String) { self.text = text }

    /// Creates a value from a literal.
    package init(stringLiteral text: String) { self.text = text }

    /// Whether both texts have the same bytes.
    package static func == (one: ExactText, other: ExactText) -> Bool {
        one.text.hasSameBytes(as: other.text)
    }

    /// Hashes the bytes.
    package func hash(into hasher: inout Hasher) {
        var text = text
        text.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
        // Separates the text from the next text in a combined hash.
        hasher.combine(0xff as UInt8)
    }

    package var description: String { text }
}

extension StringProtocol {
    /// Whether both texts have the same UTF-8 bytes.
    package func hasSameBytes(as other: some StringProtocol) -> Bool {
        let fast = utf8.withContiguousStorageIfAvailable { one in
            other.utf8.withContiguousStorageIfAvailable { one.equals($0) }
        }
        return fast.flatMap { $0 } ?? utf8.elementsEqual(other.utf8)
    }

    /// Whether the text begins with the bytes of `prefix`, even if a combining mark follows them.
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
    /// Returns the value for the key that has exactly these bytes, or nil.
    ///
    /// Use it for keys from clients or programs.
    package subscript(exactly key: String) -> Value? {
        guard let index = index(forKey: key), self[index].key.hasSameBytes(as: key) else {
            return nil
        }
        return self[index].value
    }
}
