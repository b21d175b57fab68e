// The causes of TLS failures, as far as OpenSSL and libcurl tell them apart.
//
// Pure. The numbers are OpenSSL's (x509_vfy.h); the words are OpenSSL's and libcurl's own.

/// The cause of a TLS failure.
package enum TLSTrouble: Sendable, Equatable, CaseIterable {
    /// The other side's certificate has expired.
    case expired
    /// It is not valid yet.
    case notYetValid
    /// No trusted authority has signed it; a self-signed one is its own.
    case authority
    /// It is for other names.
    case name
    /// It is not trusted for another reason.
    case distrust
    /// The file of trusted authorities cannot be used.
    case authoritiesFile
    /// This side's certificate, or its key, cannot be used.
    case clientCertificate
    /// The other side does not speak TLS.
    case notTLS
    /// The other side took the connection and never answered over TLS.
    case silence
    /// The other side ended the connection within the handshake.
    case ended
    /// Both sides speak TLS, and found no common ground.
    case handshake

    /// The cause of a failed verification.
    ///
    /// - Parameters:
    ///   - number: OpenSSL's, of the chain; the name is libcurl's to check.
    ///   - text: the words of libcurl.
    init(verification number: Int, _ text: String) {
        switch number {
        case 10: self = .expired
        case 9: self = .notYetValid
        // No issuer, a self-signed certificate or chain, and a leaf whose signature cannot be verified.
        case 2, 18, 19, 20, 21: self = .authority
        case 62, 64: self = .name
        default: self = text.contains("name") ? .name : .distrust
        }
    }

    /// The cause of a failed handshake, by OpenSSL's or libcurl's words for it.
    init(handshake text: String) {
        func says(_ words: String...) -> Bool { words.contains { text.contains($0) } }
        if says(
            "wrong version number",
            "packet length too long",
            "http request",
            "unknown protocol"
        ) {
            self = .notTLS
        } else if says("unexpected eof", "SSL_ERROR_SYSCALL", "reset by peer", "SSL_ERROR_ZERO") {
            self = .ended
        } else {
            self = .handshake
        }
    }
}
