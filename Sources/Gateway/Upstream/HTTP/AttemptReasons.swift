// The reasons an attempt over HTTP gives: what was attempted, on which upstream, what went wrong in
// libcurl's or OpenSSL's words, and what to look at.
//
// Words only; the final response is made in HTTPAttempt.swift. The invariant: every reason begins with the
// method, the target and the upstream.

import SpoolgateCurl

/// One attempt, for its reasons: they are worded out only where one is wanted.
final class AttemptReasons {
    let request: UpstreamRequest
    let location: UpstreamLocation
    let settings: UpstreamSettings

    init(_ request: UpstreamRequest, to location: UpstreamLocation, _ settings: UpstreamSettings) {
        self.request = request
        self.location = location
        self.settings = settings
    }

    /// What was attempted, as the beginning of every reason.
    var purpose: String { request.purpose(at: location.name) }

    /// Why a request was not passed on by what is in front of the upstream.
    var unforwarded: String {
        "\(purpose): status 407 (Proxy Authentication Required): a proxy requires credentials, and the gateway has none "
            + "for it; check which server listens there"
    }

    /// Why no byte of the request was sent, libcurl having come to `end` with `text`.
    func unreached(_ end: CurlEnd, _ text: String) -> String {
        switch end {
        case .untrusted:
            let trust =
                settings.certificateAuthority.map { "the certificate authorities in \($0)" }
                ?? "the system's certificate authorities"
            return "\(purpose): the certificate of host \(location.host) could not be verified "
                + "with \(trust): \(text); check the certificate, its host name and its certificate authority"
        case .badAuthorities:
            return
                "\(purpose): the certificate authorities in \(settings.certificateAuthority ?? "the system") could not "
                + "be loaded: \(text); check that file"
        case .badCertificate:
            return "\(purpose): the client certificate \(settings.clientCertificate ?? "") could "
                + "not be used: \(text); check the certificate and its key"
        case .noAddress:
            return
                "\(purpose): host \(location.host) could not be resolved: \(text); check the name and the "
                + "resolver"
        case .noConnection:
            return
                "\(purpose): connection failed: \(text); check that a server is running and listening there"
        case .timedOut:
            return
                "\(purpose): no connection within \(settings.connectTimeout): \(text); check the network path to "
                + "that host (connect timeout)"
        case .noTLS:
            return
                "\(purpose): TLS handshake with host \(location.host) failed: \(text); check that the server "
                + "supports TLS 1.2 or later"
        default:
            return "\(purpose) was not sent: \(text)"
        }
    }

    /// Why a request that was sent, or begun, got no answer, in libcurl's words `text`.
    func unanswered(_ text: String) -> String {
        // Over TLS 1.3 the upstream judges a client's certificate when the client has gone on to its
        // request already (RFC 8446 §4.4.2.4, figure 1).
        let hint =
            location.isSecure
            ? "; also check the client certificate, which the server may require" : ""
        return "\(purpose) was sent at least partly, but no response was received: \(text)\(hint)"
    }

    /// Which deadline passed: while sending, after `sent` bytes of content, or (nil) while waiting.
    func silence(sent: Int64?, hasHead: Bool) -> String {
        if let sent {
            return
                "\(purpose) stalled: no data was sent or received for \(settings.stallTimeout) after \(sent) bytes "
                + "of content; check that the server still reads (stall timeout)"
        }
        let awaited = hasHead ? "no more of the response" : "no response"
        return
            "\(purpose) received \(awaited) for \(settings.responseTimeout); check what the server is doing with "
            + "the request (response timeout)"
    }
}
