// SHA-256 (FIPS 180-4) by OpenSSL's EVP interface.
//
// The algorithm is fetched once: looking it up costs more than digesting a short text.

import COpenSSL

/// SHA-256 of bytes.
package enum SHA256 {
    /// OpenSSL's method table for SHA-256; constant once fetched and used by all threads.
    ///
    /// Not isolated: it is written once, before its first use, and only read by OpenSSL.
    private nonisolated(unsafe) static let algorithm = EVP_MD_fetch(nil, "SHA256", nil)

    /// The 32-byte digest of `bytes`; traps if OpenSSL was built without SHA-256.
    package static func digest(_ bytes: RawSpan) -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: 32)
        let status = bytes.withUnsafeBytes { source in
            EVP_Digest(source.baseAddress, source.count, &digest, nil, algorithm, nil)
        }
        precondition(status == 1, "OpenSSL has no SHA-256")
        return digest
    }
}
