// Random bits for names that must not be guessed.
//
// The standard library asks the kernel for them, getrandom(2): a generator of the process's own has a state for
// each thread, which thousands of waiting threads would keep. Without randomness it ends the process.

/// Random bits from the kernel's generator.
package enum RandomBits {
    /// 64 unpredictable bits; traps if the system has no randomness to give.
    package static func next() -> UInt64 {
        var generator = SystemRandomNumberGenerator()
        return generator.next()
    }

    /// 128 unpredictable bits; traps as `next` does.
    package static func pair() -> (high: UInt64, low: UInt64) { (next(), next()) }
}
