// SHA-256 (FIPS 180-4) of bytes that are there at once.

import COpenSSL

/// SHA-256 of bytes.
package enum SHA256 {
    /// The 32-byte digest of `bytes`; traps if OpenSSL was built without SHA-256.
    package static func digest(_ bytes: RawSpan) -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: 32)
        let status = bytes.withUnsafeBytes { source in
            EVP_Digest(
                source.baseAddress,
                source.count,
                &digest,
                nil,
                DigestFunction.sha256.method,
                nil
            )
        }
        precondition(status == 1, "OpenSSL has no SHA-256")
        return digest
    }
}
