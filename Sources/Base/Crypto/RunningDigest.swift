// Digests of content in parts, and keyed digests, with OpenSSL.
//
// Each algorithm is fetched once, because a lookup costs more than the digest of a short text.

import CSpoolgateOpenSSL

/// The algorithms for digests of content (FIPS 180-4).
package enum DigestFunction: String, Sendable, CaseIterable {
    /// SHA-1, which only protects against transmission errors.
    case sha1 = "SHA1"
    case sha256 = "SHA256"
    case sha512 = "SHA512"

    /// The length of a digest of this algorithm in bytes.
    package var length: Int { Int(EVP_MD_get_size(method)) }

    /// OpenSSL's method tables; not isolated, because the tables are written once, before their first use.
    private nonisolated(unsafe) static let fetched = Dictionary(
        uniqueKeysWithValues: allCases.map { ($0, EVP_MD_fetch(nil, $0.rawValue, nil)) }
    )

    var method: OpaquePointer? { Self.fetched[self] ?? nil }
}

/// The digest of content that arrives in parts.
///
/// Only one thread may use the digest.
package final class RunningDigest {
    private let context: OpaquePointer
    private let function: DigestFunction

    /// Starts a digest; traps if OpenSSL does not have the function or memory is exhausted.
    package init(_ function: DigestFunction) {
        guard let context = EVP_MD_CTX_new(),
            EVP_DigestInit_ex2(context, function.method, nil) == 1
        else { preconditionFailure("OpenSSL has no \(function)") }
        self.context = context
        self.function = function
    }

    deinit { EVP_MD_CTX_free(context) }

    /// Adds the next part of the content.
    package func update(_ bytes: RawSpan) {
        bytes.withUnsafeBytes { update($0) }
    }

    /// Adds the next part of the content.
    package func update(_ bytes: UnsafeRawBufferPointer) {
        let status = EVP_DigestUpdate(context, bytes.baseAddress, bytes.count)
        precondition(status == 1, "OpenSSL cannot continue a digest")
    }

    /// Returns the digest of all parts; call it only once.
    package func finish() -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: function.length)
        let status = EVP_DigestFinal_ex(context, &digest, nil)
        precondition(status == 1, "OpenSSL cannot end a digest")
        return digest
    }
}

/// HMAC (RFC 2104) with SHA-256.
package enum HMAC256 {
    /// Returns the 32-byte HMAC-SHA-256 of `bytes`; `key` must not be empty.
    package static func code(_ bytes: [UInt8], key: [UInt8]) -> [UInt8] {
        precondition(!key.isEmpty, "an HMAC needs a key")
        var code = [UInt8](repeating: 0, count: 32)
        let made = HMAC(
            DigestFunction.sha256.method,
            key,
            Int32(key.count),
            bytes,
            bytes.count,
            &code,
            nil
        )
        precondition(made != nil, "OpenSSL has no HMAC")
        return code
    }
}
