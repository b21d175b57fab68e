// A libcurl easy handle and its connection, but no pointer into a request.
//
// Invariant: the context knows the kept connection's descriptor until libcurl closes it.

import CSpoolgateCurl
package import SpoolgatePosix

/// An easy handle, its error text and its connection's socket.
///
/// Unchecked Sendable, because the owner ensures that only one thread at a time uses the connection.
package final class CurlConnection: @unchecked Sendable {
    let easy: UnsafeMutableRawPointer
    let errorText: UnsafeMutablePointer<CChar>
    package let context = CurlContext()
    private(set) var url: OpaquePointer?
    package var lines = FieldLines()
    /// Whether the options that apply to all transfers have been set.
    package var isPrepared = false
    /// Whether the next request must not use the open connection; the handle keeps its TLS session.
    package var isSpent = false
    /// The time until which the handle may stay idle in a pool.
    package var idleUntil = Deadline.after(.zero)

    /// Creates a handle; returns nil if memory is exhausted.
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

    /// Parses and keeps a URL; returns false if the URL is invalid.
    func keep(url text: String) -> Bool {
        if url == nil { url = curl_url() }
        return curl_url_set(url, CURLUPART_URL, text, 0) == CURLUE_OK
    }

    /// Runs the transfer that the options and `lines` describe; blocks until it ends.
    package func perform(for transfer: any CurlTransfer) -> CurlEnd {
        context.transfer = transfer
        defer { context.transfer = nil }
        return lines.withList { lines in
            // The result is ignored, because libcurl accepts any list.
            _ = spoolgate_curl_set_pointer(easy, CURLOPT_HTTPHEADER, lines)
            return CurlEnd(curl_easy_perform(easy))
        }
    }

    /// Makes libcurl ask for content again after `ContentStep.pause`.
    package func resume() { _ = curl_easy_pause(easy, CURLPAUSE_CONT) }

    /// Describes the last failure in the words of libcurl or OpenSSL.
    package func explanation(of end: CurlEnd) -> String {
        let text = String(cString: errorText)
        return text.isEmpty ? end.description : text
    }

    /// Describes the failure of a connection that may use a Unix socket.
    ///
    /// libcurl's own message would name its default, a port on localhost, instead of the socket.
    ///
    /// `end` is the result of the last transfer. `socket` is nil for a TCP connection.
    package func explanation(of end: CurlEnd, socket: String?) -> String {
        guard end == .noConnection, let socket, let errno = refusal else {
            return explanation(of: end)
        }
        return "\(SystemError(call: "connect", subject: "unix:\(socket)", errno: errno))"
    }

    /// Why the last connection over TCP failed, in the C library's words, such as `Connection refused`; nil if unknown.
    ///
    /// libcurl's own text contains the host and the port instead of the cause.
    package var connectionFault: String? {
        refusal.map { SystemError(call: "connect", subject: "", errno: $0).reason }
    }

    /// The system's error number for the last connection, or nil if the system reported no error.
    private var refusal: Int32? {
        long(CURLINFO_OS_ERRNO).flatMap { $0 != 0 ? Int32($0) : nil }
    }

    /// Returns why TLS failed in the last transfer, which ended with `end`, or nil if TLS did not fail.
    package func tlsProblem(of end: CurlEnd) -> TLSProblem? {
        switch end {
        case .untrusted:
            let number = long(CURLINFO_SSL_VERIFYRESULT) ?? 0
            return TLSProblem(verification: number, explanation(of: end))
        case .badAuthorities: return .authoritiesFile
        case .badCertificate: return .clientCertificate
        case .noTLS: return TLSProblem(handshake: explanation(of: end))
        case .timedOut: return explanation(of: end).contains("SSL") ? .silence : nil
        default: return nil
        }
    }

    /// The round-trip time to the peer, measured while connecting, or zero if an existing connection was used.
    package var roundTrip: Duration {
        guard let lookedUp = number(CURLINFO_NAMELOOKUP_TIME_T),
            let connected = number(CURLINFO_CONNECT_TIME_T)
        else { return .zero }
        return .microseconds(max(0, connected - lookedUp))
    }

    /// The delay in `Retry-After` of the last final response (RFC 9110 §10.2.3), or nil without such a delay.
    package var retryAfter: Duration? {
        number(CURLINFO_RETRY_AFTER).flatMap { $0 > 0 ? .seconds($0) : nil }
    }

    /// The number of content bytes that the last transfer wrote to the connection.
    package var uploaded: Int64 { number(CURLINFO_SIZE_UPLOAD_T) ?? 0 }

    private func number(_ info: CURLINFO) -> Int64? {
        var number: curl_off_t = 0
        let code = spoolgate_curl_get_offset(easy, info, &number)
        return code == CURLE_OK ? Int64(number) : nil
    }

    /// The size of the last request's head and of any content that libcurl wrote with the head.
    package var requestSize: Int {
        long(CURLINFO_REQUEST_SIZE) ?? 0
    }

    private func long(_ info: CURLINFO) -> Int? {
        var number = 0
        return spoolgate_curl_get_long(easy, info, &number) == CURLE_OK ? number : nil
    }

    /// Clears the request; keeps the options for all transfers and the connection.
    package func forgetRequest() {
        _ = spoolgate_curl_set_pointer(easy, CURLOPT_POSTFIELDS, nil)
        _ = spoolgate_curl_set_pointer(easy, CURLOPT_HTTPHEADER, nil)
        errorText[0] = 0
    }

    /// Clears the request and all options; keeps the connection open.
    package func reset() {
        curl_easy_reset(easy)
        isPrepared = false
        errorText[0] = 0
    }
}

// MARK: Results

// Results of transfers.

/// libcurl's result code of a transfer.
package struct CurlEnd: Equatable, Sendable, CustomStringConvertible {
    private let code: UInt32

    init(_ code: CURLcode) { self.code = code.rawValue }

    package static let whole = CurlEnd(CURLE_OK)
    package static let stopped = CurlEnd(CURLE_ABORTED_BY_CALLBACK)
    package static let noAddress = CurlEnd(CURLE_COULDNT_RESOLVE_HOST)
    /// The peer refused the connection, or this side opened no socket.
    package static let noConnection = CurlEnd(CURLE_COULDNT_CONNECT)
    /// Connecting took too long.
    package static let timedOut = CurlEnd(CURLE_OPERATION_TIMEDOUT)
    package static let noTLS = CurlEnd(CURLE_SSL_CONNECT_ERROR)
    package static let untrusted = CurlEnd(CURLE_PEER_FAILED_VERIFICATION)
    package static let badAuthorities = CurlEnd(CURLE_SSL_CACERT_BADFILE)
    /// This side's certificate or key is unusable.
    package static let badCertificate = CurlEnd(CURLE_SSL_CERTPROBLEM)
    package static let sendFailed = CurlEnd(CURLE_SEND_ERROR)
    package static let badURL = CurlEnd(CURLE_URL_MALFORMAT)
    package static let badScheme = CurlEnd(CURLE_UNSUPPORTED_PROTOCOL)

    /// Whether libcurl failed inside this process, so that neither the request nor the peer is at fault.
    package var isOfProcess: Bool {
        [
            CURLE_FAILED_INIT, CURLE_OUT_OF_MEMORY, CURLE_NOT_BUILT_IN,
            CURLE_BAD_FUNCTION_ARGUMENT, CURLE_UNKNOWN_OPTION,
        ].contains(CURLcode(code))
    }

    package var description: String {
        guard let known = curl_easy_strerror(CURLcode(code)) else { return "curl error \(code)" }
        return String(cString: known)
    }
}

// MARK: Idle handles

// Pools of idle handles.
//
// Invariants: a handle is returned only after a complete exchange, because a failed transfer leaves state that breaks
// the next one; no lock is held while a handle is closed.

/// The idle libcurl handles of one upstream or one client session, with their open connections.
///
/// `take` returns the most recently used handle.
package final class ConnectionPool: Sendable {
    /// The maximum number of idle handles.
    ///
    /// A handle returned to a full pool is closed.
    package static let capacity = 32
    package static let idleTime = Duration.seconds(60)

    private let idle = Monitor<[CurlConnection]>([])

    /// Creates an empty pool.
    package init() {}

    /// Takes an idle handle out of the pool or creates a handle; returns nil if memory is exhausted.
    package func take() -> CurlConnection? {
        idle.update { $0.popLast() } ?? CurlConnection()
    }

    /// Puts a handle back after a complete exchange, and closes pooled handles that have been idle for `idleTime`.
    package func giveBack(_ connection: CurlConnection) {
        connection.forgetRequest()
        connection.idleUntil = .after(Self.idleTime)
        // The surplus is closed outside the lock, because a TLS shutdown may take time.
        let surplus = idle.update { idle -> [CurlConnection] in
            let expired = idle.prefix { $0.idleUntil.hasPassed }
            idle.removeFirst(expired.count)
            guard idle.count < Self.capacity else { return expired + [connection] }
            idle.append(connection)
            return Array(expired)
        }
        withExtendedLifetime(surplus) {}
    }
}
