// Causes of TLS failures, from OpenSSL's numbers (x509_vfy.h) and texts.

/// The cause of a TLS failure.
package enum TLSProblem: Sendable, Equatable, CaseIterable {
    case expired
    case notYetValid
    /// The peer's certificate is self-signed, or its authority is not trusted.
    case authority
    /// The peer's certificate is for other names.
    case name
    /// The peer's certificate is not trusted for another reason.
    case distrust
    case authoritiesFile
    /// This side's certificate or key is unusable.
    case clientCertificate
    case notTLS
    /// The peer accepted the connection but never responded with TLS.
    case silence
    /// The peer closed the connection during the handshake.
    case ended
    /// The two sides have no TLS version or cipher in common.
    case handshake

    /// Determines the cause from OpenSSL's result for the chain and from libcurl's text, because libcurl itself checks
    /// the name.
    init(verification number: Int, _ text: String) {
        switch number {
        case 10: self = .expired
        case 9: self = .notYetValid
        // The issuer is missing, the certificate or chain is self-signed, or a leaf's signature cannot be verified.
        case 2, 18, 19, 20, 21: self = .authority
        case 62, 64: self = .name
        default: self = text.contains("name") ? .name : .distrust
        }
    }

    /// Determines the cause of a failed handshake from its description.
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
