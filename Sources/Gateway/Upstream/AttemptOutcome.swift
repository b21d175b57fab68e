// The outcome of one delivery attempt, and the refusal for the client.

import SpoolgateCurl
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// How one delivery attempt ended.
package enum AttemptOutcome: Sendable, Equatable {
    /// The sink received a complete final response.
    case responded
    /// Nothing was sent, because memory is exhausted or a library failed; safe to repeat.
    case notTried(reason: String)
    /// No byte of the request was sent: no connection, no TLS, or an unknown host name; safe to repeat.
    ///
    /// `timedOut` is true if the connect timeout expired for every target.
    case notReached(reason: String, timedOut: Bool = false)
    /// The upstream's directory or bucket is full and stored nothing; safe to repeat.
    case noRoom(reason: String)
    /// The store refused the request for a cause that is temporary, or that its operator can fix; safe to repeat.
    ///
    /// `retryAfter` is how long the store asked to wait, in seconds.
    case deferred(reason: String, retryAfter: Int? = nil)
    /// The upstream did not process the request. The caller must send the request to the upstream's target `to`
    /// instead.
    ///
    /// Occurs only if `UpstreamRequest.interceptsRedirects` is true.
    case redirected(to: String)
    /// A proxy responded with 407 and did not forward the request; safe to repeat.
    case notForwarded(reason: String)
    /// Bytes of the request were sent, but no complete final response was received.
    ///
    /// `timedOut` is true if the upstream's stall or response timeout expired.
    case indeterminate(reason: String, timedOut: Bool = false)
    /// Reading the request's content failed with the error in `reason`.
    case abandoned(reason: String)
    /// The sink failed with the error in `reason` before it received the whole final response.
    case undelivered(reason: String)

    package var reason: String? {
        switch self {
        case .responded: nil
        case .redirected(let target): "the upstream redirected the request to \(target)"
        case .notTried(let reason), .notReached(let reason, _), .noRoom(let reason),
            .deferred(let reason, _), .notForwarded(let reason), .indeterminate(let reason, _),
            .abandoned(let reason), .undelivered(let reason):
            reason
        }
    }

    package var timedOut: Bool {
        switch self {
        case .notReached(_, let timedOut), .indeterminate(_, let timedOut): timedOut
        case .responded, .notTried, .noRoom, .deferred, .redirected, .notForwarded, .abandoned,
            .undelivered:
            false
        }
    }

    /// How long the upstream asked the gateway to wait, in seconds; nil if unknown.
    package var retryAfter: Int? {
        if case .deferred(_, let retryAfter) = self { retryAfter } else { nil }
    }
}

extension AttemptOutcome {
    /// Whether the upstream did not process the request, so that repeating it is safe for every method.
    package var isUnsent: Bool {
        switch self {
        case .notTried, .notReached, .noRoom, .deferred, .redirected, .notForwarded: true
        case .responded, .indeterminate, .abandoned, .undelivered: false
        }
    }

    /// The refusal to send to the client.
    ///
    /// The refusal does not name internal hosts and files, which appear only in the log.
    ///
    /// - Parameters:
    ///   - isRepeatable: true if the request may be sent again.
    ///   - isKept: true if the upload is kept for another attempt.
    /// - Returns: the refusal; nil if there is a complete response to send.
    package func refusal(isRepeatable: Bool, isKept: Bool) -> Refusal? {
        switch self {
        case .responded: nil
        case .notTried, .notReached, .notForwarded:
            .notReached(timedOut: timedOut, isKept: isKept)
        case .redirected: .upstreamRedirects
        case .noRoom: .destinationFull(isKept: isKept)
        case .deferred: .upstreamBusy(retryAfter: retryAfter, isKept: isKept)
        case .indeterminate, .abandoned, .undelivered:
            isRepeatable
                ? .upstreamBrokeOff(reason: cause, timedOut: timedOut)
                : .upstreamSilent(reason: cause, timedOut: timedOut)
        }
    }

    private var cause: String {
        if timedOut { return "the request timed out" }
        if case .abandoned = self { return "the upload could not be read completely" }
        return "the connection was closed"
    }
}

// MARK: Reasons

// The reasons why an attempt over HTTP failed, with the error text of libcurl or OpenSSL, and the fix.
//
// HTTPAttempt.swift decides the outcome. Invariant: every reason begins with the method, the target and the upstream.

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
                settings.tls.authorities.map { "the certificate authorities in \($0)" }
                ?? "the system's certificate authorities"
            return "\(purpose): the certificate of host \(location.host) could not be verified "
                + "with \(trust): \(text); check the certificate, its host name and its certificate authority"
        case .badAuthorities:
            return
                "\(purpose): the certificate authorities in \(settings.tls.authorities ?? "the system") could not "
                + "be loaded: \(text); check that file"
        case .badCertificate:
            return "\(purpose): the client certificate \(settings.tls.certificate ?? "") could "
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
    func withoutResponse(_ text: String) -> String {
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
