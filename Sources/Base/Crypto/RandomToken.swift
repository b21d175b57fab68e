// Unguessable texts.

/// Creates random tokens.
package enum RandomToken {
    /// Returns 128 unpredictable bits as 32 lower-case hexadecimal digits; traps like `RandomBits.next`.
    package static func make() -> String {
        let bits = RandomBits.pair()
        return [bits.high, bits.low].map { half in
            let digits = String(half, radix: 16)
            return String(repeating: "0", count: 16 - digits.utf8.count) + digits
        }.joined()
    }
}
