// One libcurl easy handle with the connection it keeps.
//
// A handle is used by one transfer at a time. It keeps the options that hold for every transfer to its
// endpoint (CurlOptions.swift), and nothing that points to a request. The invariant: a context knows the
// descriptor of the kept connection while libcurl has it open.

import CSpoolgateCurl
package import SpoolgatePosix

/// An easy handle, its error text and its connection's socket.
///
/// One thread at a time, which its owner sees to; hence unchecked.
package final class CurlConnection: @unchecked Sendable {
    /// The handle.
    let easy: UnsafeMutableRawPointer
    /// Where libcurl writes why it failed.
    let errorText: UnsafeMutablePointer<CChar>
    /// Its sockets and the transfer under way: what libcurl's callbacks are given.
    package let context = CurlContext()
    /// What libcurl connects to, taken apart.
    private(set) var url: OpaquePointer?
    /// The field lines of the transfer under way.
    package var lines = FieldLines()
    /// Whether the options that hold for every transfer are set.
    package var isPrepared = false
    /// Until when it may be kept unused.
    package var idleUntil = Deadline.after(.zero)

    /// Makes a handle; nil when there is no memory for it.
    package init?() {
        guard Self.libraryIsReady, let easy = curl_easy_init() else { return nil }
        self.easy = easy
        errorText = .allocate(capacity: Int(CURL_ERROR_SIZE))
        errorText.initialize(repeating: 0, count: Int(CURL_ERROR_SIZE))
    }

    deinit {
        curl_easy_cleanup(easy)
        curl_url_cleanup(url)
        errorText.deallocate()
    }

    private static let libraryIsReady = spoolgate_curl_global_init() == CURLE_OK

    /// Takes a URL apart and keeps it; false for what is none.
    func keep(url text: String) -> Bool {
        if url == nil { url = curl_url() }
        return curl_url_set(url, CURLUPART_URL, text, 0) == CURLUE_OK
    }

    /// Runs the transfer that the options and `lines` describe; blocks until it is over.
    package func perform(for transfer: any CurlTransfer) -> CurlEnd {
        context.transfer = transfer
        defer { context.transfer = nil }
        return lines.withList { lines in
            // libcurl takes any list.
            _ = spoolgate_curl_set_pointer(easy, CURLOPT_HTTPHEADER, lines)
            return CurlEnd(curl_easy_perform(easy))
        }
    }

    /// Lets content go on after `ContentStep.pause`.
    package func resume() { _ = curl_easy_pause(easy, CURLPAUSE_CONT) }

    /// Why the last transfer failed, in libcurl's or OpenSSL's words.
    package func explanation(of end: CurlEnd) -> String {
        let text = String(cString: errorText)
        return text.isEmpty ? end.description : text
    }

    /// The same of a connection to a unix socket, for which libcurl's words name its own default, a port of localhost.
    ///
    /// - Parameters:
    ///   - end: how the last transfer ended.
    ///   - socket: the path of the socket; nil: it went over TCP.
    /// - Returns: the words.
    package func explanation(of end: CurlEnd, socket: String?) -> String {
        guard end == .noConnection, let socket, let errno = refusal else {
            return explanation(of: end)
        }
        return "\(SystemError(call: "connect", subject: "unix:\(socket)", errno: errno))"
    }

    /// Why the last connection was not made, the system's number of it; nil: it was made, or the system did not say.
    private var refusal: Int32? {
        var number = 0
        let code = spoolgate_curl_get_long(easy, CURLINFO_OS_ERRNO, &number)
        return code == CURLE_OK && number != 0 ? Int32(number) : nil
    }

    /// The cause of the TLS failure of the last transfer, which ended with `end`; nil: TLS did not fail.
    package func tlsTrouble(of end: CurlEnd) -> TLSTrouble? {
        switch end {
        case .untrusted:
            var number = 0
            let code = spoolgate_curl_get_long(easy, CURLINFO_SSL_VERIFYRESULT, &number)
            return TLSTrouble(verification: code == CURLE_OK ? number : 0, explanation(of: end))
        case .badAuthorities: return .authoritiesFile
        case .badCertificate: return .clientCertificate
        case .noTLS: return TLSTrouble(handshake: explanation(of: end))
        case .timedOut: return explanation(of: end).contains("SSL") ? .silence : nil
        default: return nil
        }
    }

    /// The time of one round trip, as connecting took it; zero over a kept connection.
    package var roundTrip: Duration {
        guard let lookedUp = number(CURLINFO_NAMELOOKUP_TIME_T),
            let connected = number(CURLINFO_CONNECT_TIME_T)
        else { return .zero }
        return .microseconds(max(0, connected - lookedUp))
    }

    /// For how long the last final response asked to wait, by a number or a date (RFC 9110 §10.2.3); nil: not at all.
    package var retryAfter: Duration? {
        number(CURLINFO_RETRY_AFTER).flatMap { $0 > 0 ? .seconds($0) : nil }
    }

    /// Bytes of content that the connection has taken in the last transfer.
    package var uploaded: Int64 { number(CURLINFO_SIZE_UPLOAD_T) ?? 0 }

    /// A number that libcurl knows of the last transfer; nil: it does not know it.
    private func number(_ info: CURLINFO) -> Int64? {
        var number: curl_off_t = 0
        let code = spoolgate_curl_get_offset(easy, info, &number)
        return code == CURLE_OK ? Int64(number) : nil
    }

    /// Bytes of the request's first part that the connection has taken in this transfer.
    package var requestSize: Int {
        var size = 0
        let code = spoolgate_curl_get_long(easy, CURLINFO_REQUEST_SIZE, &size)
        return code == CURLE_OK ? size : 0
    }

    /// Forgets the request; the options that hold for every transfer and the connection stay.
    package func forgetRequest() {
        _ = spoolgate_curl_set_pointer(easy, CURLOPT_POSTFIELDS, nil)
        _ = spoolgate_curl_set_pointer(easy, CURLOPT_HTTPHEADER, nil)
        errorText[0] = 0
    }

    /// Forgets the request and all options; the connection stays open.
    package func reset() {
        curl_easy_reset(easy)
        isPrepared = false
        errorText[0] = 0
    }
}
