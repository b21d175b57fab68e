// The reasons why an attempt over HTTP failed, with the error text of libcurl or OpenSSL, and the fix.
//
// HTTPAttempt.swift decides the outcome. Invariant: every reason begins with the method, the target and the upstream.

import SpoolgateCurl
import SpoolgateTextFormats

/// The reasons of one attempt, each built only when needed.
final class AttemptReasons {
    let request: UpstreamRequest
    let location: UpstreamLocation
    let settings: UpstreamSettings

    init(_ request: UpstreamRequest, to location: UpstreamLocation, _ settings: UpstreamSettings) {
        self.request = request
        self.location = location
        self.settings = settings
    }

    var purpose: String { request.purpose(at: location.name) }

    /// The reason if a proxy did not forward the request.
    var unforwarded: String {
        "\(purpose): status 407 (Proxy Authentication Required): a proxy requires credentials, and the gateway has none "
            + "for it; check which server listens there"
    }

    /// The reason if no byte of the request was sent; `text` is libcurl's error text.
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
                "\(purpose): host \(location.host) could not be resolved; check the name, and the "
                + "resolver of this machine"
        case .noConnection:
            return
                "\(purpose): connection failed: \(text); check that a server is running and listening there"
        case .timedOut:
            // Other texts of libcurl only repeat that the time has expired.
            let phase = text.contains("SSL") ? ": \(text)" : ""
            return
                "\(purpose): no connection within \(timeout(settings.connectTimeout, "connect"))\(phase); check the "
                + "network path to that host"
        case .noTLS:
            return
                "\(purpose): TLS handshake with host \(location.host) failed: \(text); check that the server "
                + "supports TLS 1.2 or later"
        default:
            return "\(purpose) was not sent: \(text)"
        }
    }

    /// The reason if bytes of the request were sent, but no complete response arrived.
    func unanswered(_ text: String) -> String {
        // With TLS 1.3, the server checks a client certificate after the client has begun its request (RFC 8446
        // §4.4.2.4, figure 1).
        let hint =
            location.isSecure
            ? "; also check the client certificate, which the server may require" : ""
        return
            "\(purpose) was sent at least partly, but no response was received: \(text); check the "
            + "server's log\(hint)"
    }

    /// The reason if a timeout expired after `sent` bytes of content, or while awaiting the response if `sent` is nil.
    func silence(sent: Int64?, hasHead: Bool) -> String {
        if let sent {
            return
                "\(purpose): no data was sent or received for \(timeout(settings.stallTimeout, "stall")) after "
                + "\(sent) bytes of content; check why the server stopped reading"
        }
        let awaited = hasHead ? "no further part of the response" : "no response"
        return
            "\(purpose): received \(awaited) within \(timeout(settings.responseTimeout, "response")); check why the "
            + "server is slow to respond"
    }

    /// The text of a timeout and its setting, such as `60s (timeouts.stall)`.
    private func timeout(_ duration: Duration, _ name: String) -> String {
        let setting = settings.hasOneTimeout ? "timeout" : "timeouts.\(name)"
        return "\(DurationText.text(duration)) (\(setting))"
    }
}
