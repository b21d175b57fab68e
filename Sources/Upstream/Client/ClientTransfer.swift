// One request as a client of the gateway sends it: over a connection of its own, HTTP/1.1 or HTTP/2, with
// every interim response, and with content that may wait or break the connection.
//
// An attempt on an upstream (HTTPAttempt.swift) weighs what may be repeated; here nothing is repeated,
// redirected or reused, and nothing is judged. libcurl drives it. The invariant: no Swift error leaves a
// callback, and the connection is closed when `run` returns.

import CCurl
import Glibc
import HTTPTypes
import Posix
package import UploadProtocol

/// One request under way, and afterwards what became of it.
///
/// One thread; runs once.
package final class ClientTransfer {
    /// The interim responses, 100 (Continue) among them.
    package private(set) var interim: [ClientInterim] = []
    /// The final response's head.
    package private(set) var head: ResponseHead?
    /// The first bytes of its content.
    package private(set) var content: [UInt8] = []
    /// Whether it was answered over HTTP/2.
    package private(set) var isHTTP2 = false
    /// Bytes of content that were given.
    package private(set) var sent: Int64 = 0
    /// Of these, bytes that the other side's system has not taken yet.
    package var unsent: Int64 { Int64(max(0, context?.unsent ?? 0)) }
    /// Why there is no whole answer; nil where there is one.
    package private(set) var fault: ClientFault?
    /// The time of one round trip, as connecting took it.
    package private(set) var roundTrip = Duration.zero
    /// From the beginning of the request, then from there to its end.
    package var elapsed: Duration { (end ?? .now) - start }

    /// Most content of a response that is kept.
    private static let contentLimit = 64 * 1024
    /// Between two questions to content that has nothing yet.
    private static let pauseMicroseconds: UInt32 = 5_000

    private let request: ClientRequest
    private let isStopped: () -> Bool
    private var start = ContinuousClock.now
    private var end: ContinuousClock.Instant?
    private var reader = ResponseHeadReader()
    private var malformed: String?
    private var easy: UnsafeMutableRawPointer?
    private var context: CurlContext?
    private var isPaused = false
    private var resets = false
    private var wasStopped = false
    private var wasSilent = false
    private var wasHungUp = false
    private var moved: Int64 = 0
    private var deadline = Deadline.after(.zero)

    /// Makes a transfer; `isStopped` is asked some times a second, and ends it.
    package init(_ request: ClientRequest, isStopped: @escaping () -> Bool = { false }) {
        self.request = request
        self.isStopped = isStopped
    }

    /// Sends the request and takes the answer; blocks until there is one, or a fault.
    package func run() {
        start = .now
        defer { end = .now }
        deadline = .after(request.timeout * 2)
        guard let connection = CurlConnection() else {
            fault = ClientFault(.notTried, "there is no memory for a connection")
            return
        }
        easy = connection.easy
        context = connection.context
        defer { easy = nil }
        do throws(CurlOptionError) {
            try setOptions(on: connection)
        } catch {
            fault = ClientFault(.notTried, error.reason)
            return
        }
        let code = connection.lines.withList { lines in
            CurlOptions(on: connection).setFields(lines)
            return curl_easy_perform(connection.easy)
        }
        roundTrip = Self.roundTrip(of: connection)
        fault = fault(code, connection.explanation(of: code))
    }

    // MARK: Options

    private func setOptions(on connection: CurlConnection) throws(CurlOptionError) {
        let options = CurlOptions(on: connection)
        try options.set(CURLOPT_ERRORBUFFER, pointer: connection.errorText)
        try options.set(CURLOPT_URL, request.url)
        if let socket = request.socket { try options.set(CURLOPT_UNIX_SOCKET_PATH, socket) }
        try options.set(CURLOPT_PROTOCOLS_STR, "http,https")
        try options.set(CURLOPT_PATH_AS_IS, 1)
        try options.set(CURLOPT_PROXY, "")
        try options.set(CURLOPT_NOSIGNAL, 1)
        try options.set(CURLOPT_NOPROGRESS, 0)
        let version =
            request.version == .http2 ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1
        try options.set(CURLOPT_HTTP_VERSION, Int(version))
        let timeout = max(1, Int(request.timeout.wholeMilliseconds))
        try options.set(CURLOPT_CONNECTTIMEOUT_MS, timeout)
        // A server that has not said 100 by then is asked no longer.
        try options.set(CURLOPT_EXPECT_100_TIMEOUT_MS, timeout)
        let least = request.wantsNewestTLS ? CURL_SSLVERSION_TLSv1_3 : CURL_SSLVERSION_TLSv1_2
        try options.set(CURLOPT_SSLVERSION, Int(least))
        if let file = request.certificateAuthority {
            try options.set(CURLOPT_CAINFO, file)
            try options.set(CURLOPT_CAPATH, pointer: nil)
        }
        if request.onlyConnects { try options.set(CURLOPT_CONNECT_ONLY, 1) }
        try setContent(options)
        connection.lines.removeAll()
        for field in request.fields { try connection.lines.add(field) }
        if !request.fields.contains(.accept) { connection.lines.add("Accept:") }
        if request.content != nil {
            if !request.fields.contains(.contentType) { connection.lines.add("Content-Type:") }
            if !request.fields.contains(.expect) { connection.lines.add("Expect:") }
        } else if [.post, .put, .patch].contains(request.method) {
            connection.lines.add("Content-Length: 0")
        }
        setCallbacks(connection.easy)
    }

    private func setContent(_ options: CurlOptions) throws(CurlOptionError) {
        if request.method == .head {
            try options.set(CURLOPT_NOBODY, 1)
            return
        }
        if let content = request.content {
            try options.set(CURLOPT_UPLOAD, 1)
            try options.set(offset: CURLOPT_INFILESIZE_LARGE, content.length ?? -1)
            try options.set(CURLOPT_UPLOAD_BUFFERSIZE, CurlOptions.largestSecureUploadBuffer)
        }
        try options.set(CURLOPT_CUSTOMREQUEST, request.method.rawValue)
    }

    private func setCallbacks(_ easy: UnsafeMutableRawPointer) {
        let this = Unmanaged.passUnretained(self).toOpaque()
        _ = spoolgate_curl_set_open_socket(easy, this) { this, _, address in
            guard let context = found(this)?.context, let address else { return CURL_SOCKET_BAD }
            return context.openSocket(address)
        }
        _ = spoolgate_curl_set_close_socket(easy, this) { this, socket in
            found(this)?.close(socket) ?? Glibc.close(socket)
        }
        _ = spoolgate_curl_set_progress(easy, this) { this, _, downloaded, _, uploaded in
            found(this)?.watch(moved: Int64(downloaded) + Int64(uploaded)) ?? true ? 0 : 1
        }
        _ = spoolgate_curl_set_head_function(easy, this) { bytes, size, count, this in
            let line = UnsafeRawBufferPointer(start: bytes, count: size * count)
            return found(this)?.take(line: line) ?? false ? line.count : 0
        }
        _ = spoolgate_curl_set_write_function(easy, this) { bytes, size, count, this in
            found(this)?.take(content: .init(start: bytes, count: size * count))
            return size * count
        }
        _ = spoolgate_curl_set_read_function(easy, this) { bytes, size, count, this in
            let buffer = UnsafeMutableRawBufferPointer(start: bytes, count: size * count)
            return found(this)?.give(buffer) ?? Int(CURL_READFUNC_ABORT)
        }
    }

    // MARK: What libcurl calls

    private func close(_ socket: curl_socket_t) -> Int32 {
        if resets {
            var linger = linger(l_onoff: 1, l_linger: 0)
            let size = socklen_t(MemoryLayout<Glibc.linger>.size)
            _ = setsockopt(socket, SOL_SOCKET, SO_LINGER, &linger, size)
        }
        return context?.closeSocket(socket) ?? Glibc.close(socket)
    }

    /// Called after every step and at least once a second; false: give up.
    private func watch(moved count: Int64) -> Bool {
        if isStopped() {
            wasStopped = true
            return false
        }
        if count != moved {
            moved = count
            progressed()
        }
        if isPaused {
            isPaused = false
            // libcurl would go on asking for content that it can send to nobody.
            if head == nil, context?.isHungUp ?? false {
                wasHungUp = true
                return false
            }
            // libcurl goes on at once with what it is allowed to; this is what keeps it from spinning.
            usleep(Self.pauseMicroseconds)
            if let easy { _ = curl_easy_pause(easy, CURLPAUSE_CONT) }
        }
        wasSilent = deadline.hasPassed
        return !wasSilent
    }

    private func progressed() { deadline = .after(request.timeout) }

    private func give(_ buffer: UnsafeMutableRawBufferPointer) -> Int {
        guard let content = request.content else { return 0 }
        // Its own time is not the server's.
        defer { progressed() }
        switch content.next(buffer, self) {
        case .bytes(let count):
            sent += Int64(count)
            return count
        case .later:
            isPaused = true
            return Int(CURL_READFUNC_PAUSE)
        case .reset:
            resets = true
            wasStopped = true
            return Int(CURL_READFUNC_ABORT)
        }
    }

    private func take(line: UnsafeRawBufferPointer) -> Bool {
        // Trailers.
        guard head == nil else { return true }
        progressed()
        var line = Array(line)
        let second = Array("HTTP/2 ".utf8)
        if line.starts(with: second) {
            isHTTP2 = true
            line.replaceSubrange(..<second.count, with: "HTTP/1.1 ".utf8)
        }
        do throws(ResponseHeadReader.Malformed) {
            guard case .head(let head, _) = try reader.take(line) else { return true }
            if head.status.code < 200 {
                interim.append(ClientInterim(head: head, after: elapsed, sent: sent))
            } else {
                self.head = head
            }
            return true
        } catch {
            malformed = error.reason
            return false
        }
    }

    private func take(content bytes: UnsafeRawBufferPointer) {
        progressed()
        content.append(contentsOf: bytes.prefix(Self.contentLimit - content.count))
    }

    // MARK: The end

    private func fault(_ code: CURLcode, _ text: String) -> ClientFault? {
        if wasStopped { return ClientFault(.stopped, "ended from this side") }
        // A server that answered whole and then broke the sending off has answered.
        if head != nil || code == CURLE_OK { return nil }
        if let malformed { return ClientFault(.noAnswer, "what came is no response: \(malformed)") }
        if wasHungUp { return ClientFault(.noAnswer, "the connection was closed") }
        if wasSilent {
            return ClientFault(.silence, "nothing came or went for \(request.timeout)")
        }
        switch code {
        case CURLE_COULDNT_RESOLVE_HOST: return ClientFault(.noAddress, text)
        case CURLE_COULDNT_CONNECT, CURLE_OPERATION_TIMEDOUT:
            return ClientFault(.noConnection, text)
        case CURLE_SSL_CONNECT_ERROR, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CACERT_BADFILE,
            CURLE_SSL_CERTPROBLEM:
            return ClientFault(.noTLS, text)
        case CURLE_URL_MALFORMAT, CURLE_UNSUPPORTED_PROTOCOL: return ClientFault(.notTried, text)
        default: return ClientFault(.noAnswer, text)
        }
    }

    private static func roundTrip(of connection: CurlConnection) -> Duration {
        var (lookedUp, connected): (curl_off_t, curl_off_t) = (0, 0)
        let easy = connection.easy
        guard
            spoolgate_curl_get_offset(easy, CURLINFO_NAMELOOKUP_TIME_T, &lookedUp) == CURLE_OK,
            spoolgate_curl_get_offset(easy, CURLINFO_CONNECT_TIME_T, &connected) == CURLE_OK
        else { return .zero }
        return .microseconds(max(0, Int64(connected) - Int64(lookedUp)))
    }
}

extension ResponseHeadReader {
    fileprivate mutating func take(_ line: [UInt8]) throws(Malformed) -> Step {
        var outcome: Result<Step, Malformed>?
        line.withUnsafeBytes { bytes in
            do throws(Malformed) { outcome = .success(try take(bytes)) } catch {
                outcome = .failure(error)
            }
        }
        guard let outcome else { return .more }
        return try outcome.get()
    }
}

private func found(_ context: UnsafeMutableRawPointer?) -> ClientTransfer? {
    context.map { Unmanaged<ClientTransfer>.fromOpaque($0).takeUnretainedValue() }
}
