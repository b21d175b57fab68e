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
        "\(purpose) was answered with 407 (Proxy Authentication Required): something on the way wants credentials, and "
            + "the gateway has none for it; look at what listens there"
    }

    /// Why no byte of the request was sent, libcurl having come to `end` with `text`.
    func unreached(_ end: CurlEnd, _ text: String) -> String {
        switch end {
        case .untrusted:
            let trust =
                settings.certificateAuthority.map { "the authorities in \($0)" }
                ?? "the system's authorities"
            return "\(purpose): the certificate of host \(location.host) could not be verified "
                + "with \(trust): \(text); look at the certificate, its host name and the "
                + "authority it needs"
        case .badAuthorities:
            return
                "\(purpose): the authorities in \(settings.certificateAuthority ?? "the system") "
                + "could not be loaded: \(text); look at that file"
        case .badCertificate:
            return "\(purpose): the client certificate \(settings.clientCertificate ?? "") could "
                + "not be used: \(text); look at it and at its key"
        case .noAddress:
            return "\(purpose): no address for host \(location.host): \(text); look at the name "
                + "and the resolver"
        case .noConnection:
            return "\(purpose): no connection: \(text); look whether a server runs and listens "
                + "there"
        case .timedOut:
            return "\(purpose): no connection within \(settings.connectTimeout): \(text); look "
                + "at the way to that host (connect timeout)"
        case .noTLS:
            return "\(purpose): no TLS with host \(location.host): \(text); look whether the "
                + "server there speaks TLS 1.2 or newer"
        default:
            return "\(purpose) was not sent: \(text)"
        }
    }

    /// Why a request that was sent, or begun, got no answer, in libcurl's words `text`.
    func unanswered(_ text: String) -> String {
        // Over TLS 1.3 the upstream judges a client's certificate when the client has gone on to its
        // request already (RFC 8446 §4.4.2.4, figure 1).
        let hint = location.isSecure ? "; look also at the client certificate it may want" : ""
        return "\(purpose) was sent at least in part, no answer: \(text)\(hint)"
    }

    /// Which deadline passed: while sending, after `sent` bytes of content, or (nil) while waiting.
    func silence(sent: Int64?, hasHead: Bool) -> String {
        if let sent {
            return "\(purpose) stalled: no byte went either way for \(settings.stallTimeout) "
                + "after \(sent) bytes of content; look whether the server still reads "
                + "(stall timeout)"
        }
        let awaited = hasHead ? "nothing more of the response" : "no response"
        return "\(purpose) got \(awaited) for \(settings.responseTimeout); look what the "
            + "server is doing with the request (response timeout)"
    }
}
