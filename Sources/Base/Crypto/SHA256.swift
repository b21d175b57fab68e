// SHA-256 (FIPS 180-4) of bytes in memory.

/// SHA-256 of bytes.
package enum SHA256 {
    /// Returns the 32-byte digest of `bytes`; traps if OpenSSL lacks SHA-256.
    package static func digest(_ bytes: RawSpan) -> [UInt8] {
        let digest = RunningDigest(.sha256)
        digest.update(bytes)
        return digest.finish()
    }
}
