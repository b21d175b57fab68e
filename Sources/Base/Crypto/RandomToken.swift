// Short texts that nobody can guess and nobody has used before.

/// Makes random tokens.
package enum RandomToken {
    /// 128 unpredictable bits as 32 lower-case hexadecimal digits; traps as `RandomBits.next` does.
    package static func make() -> String {
        let bits = RandomBits.pair()
        return [bits.high, bits.low].map { half in
            let digits = String(half, radix: 16)
            return String(repeating: "0", count: 16 - digits.utf8.count) + digits
        }.joined()
    }
}
