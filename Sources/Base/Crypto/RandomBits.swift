// Random bits for unguessable names, from getrandom(2).
//
// A generator in the process would need a state for each of thousands of threads.

/// Random bits from the kernel's generator.
package enum RandomBits {
    /// Returns 64 unpredictable bits; traps if the system has no randomness.
    package static func next() -> UInt64 {
        var generator = SystemRandomNumberGenerator()
        return generator.next()
    }

    /// Returns 128 unpredictable bits in two halves; traps like `next`.
    package static func pair() -> (high: UInt64, low: UInt64) { (next(), next()) }
}
