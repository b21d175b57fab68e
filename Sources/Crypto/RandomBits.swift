// Random bits for names that must not be guessed.
//
// OpenSSL's generator seeds itself from the system and again in a forked child. There is no way to
// go on without randomness, so its absence ends the process.

import COpenSSL

/// Random bits from OpenSSL's generator.
package enum RandomBits {
    /// 64 unpredictable bits; traps if the system has no randomness to give.
    package static func next() -> UInt64 { pair().low }

    /// 128 unpredictable bits, for half the price of twice 64; traps as `next` does.
    package static func pair() -> (high: UInt64, low: UInt64) {
        var bits: (high: UInt64, low: UInt64) = (0, 0)
        let status = withUnsafeMutableBytes(of: &bits) { bytes in
            RAND_bytes(bytes.baseAddress, Int32(bytes.count))
        }
        precondition(status == 1, "the system has no randomness to give")
        return bits
    }
}
