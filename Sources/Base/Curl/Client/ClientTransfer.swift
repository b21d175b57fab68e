// Client requests over HTTP/1.1 or HTTP/2.
//
// Nothing is retried, redirected or assessed, unlike in HTTPAttempt.swift. Invariant: no Swift error leaves a callback,
// and a transfer's own connection is closed when `run` returns.

import Glibc
import HTTPTypes
import SpoolgatePosix
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// A running request, and later its result.
///
/// Use it once, on one thread.
package final class ClientTransfer: CurlTransfer {
    /// The interim responses, including 100 (Continue).
    package private(set) var interim: [ClientInterim] = []
    package private(set) var head: ResponseHead?
    /// The start of the final response's content, at most `contentLimit` bytes.
    package private(set) var content: [UInt8] = []
    package private(set) var isHTTP2 = false
    /// The number of content bytes handed to libcurl.
    package private(set) var sent: Int64 = 0
    /// The number of sent bytes that the peer's system has not yet acknowledged.
    package var unsent: Int64 { Int64(max(0, context?.unsent ?? 0)) }
    /// Whether the request may have been sent, so that the server may have processed it.
    package private(set) var wasBegun = false
    /// The number of content bytes written to the connection.
    package private(set) var uploaded: Int64 = 0
    package private(set) var retryAfter: Duration?
    package private(set) var fault: ClientFault?
    /// The round-trip time, measured while connecting.
    package private(set) var roundTrip = Duration.zero
    package var elapsed: Duration { (end ?? .now) - start }

    private static let contentLimit = 64 * 1024
    /// The interval at which paused content is called again.
    private static let pauseMilliseconds: Int32 = 5

    private let request: ClientRequest
    private let isStopped: () -> Bool
    private let connection: CurlConnection?
    private var start = ContinuousClock.now
    private var end: ContinuousClock.Instant?
    private var reader = ResponseHeadReader()
    private var context: CurlContext? { connection?.context }
    private var isPaused = false
    /// Whether anything was received since the content last paused.
    private var hasReceived = true
    private var wasGivenWhole = false
    private var ending: ClientFault?
    private var moved: Int64 = 0
    private var deadline = Deadline.after(.zero)

    /// Creates a transfer over `connection`, or over a connection of its own if `connection` is nil.
    ///
    /// No other transfer may use `connection` meanwhile. The connection remains open afterwards. `isStopped` is called
    /// several times a second and must return true to end the transfer.
    package init(
        _ request: ClientRequest,
        over connection: CurlConnection? = nil,
        isStopped: @escaping () -> Bool = { false }
    ) {
        self.request = request
        self.connection = connection ?? CurlConnection()
        self.isStopped = isStopped
    }

    /// Sends the request; blocks until the response is complete or the transfer has failed.
    ///
    /// Call it only once. If the transfer failed, `fault` is then the reason.
    package func run() {
        start = .now
        defer { end = .now }
        deadline = .after(request.timeout * 2)
        guard let connection else {
            fault = ClientFault(.notTried, "no memory for a connection")
            return
        }
        connection.reset()
        // Detects that the peer has disappeared during a long wait for a response.
        connection.context.acknowledgementLimit = request.timeout
        defer { connection.context.resets = false }
        do throws(CurlOptionError) {
            try setOptions(on: connection)
        } catch {
            fault = ClientFault(.notTried, error.reason)
            return
        }
        let end = connection.perform(for: self)
        roundTrip = connection.roundTrip
        uploaded = connection.uploaded
        retryAfter = connection.retryAfter
        fault = fault(end, connection.explanation(of: end, socket: request.socket))
        if fault != nil {
            fault?.tls = connection.tlsProblem(of: end)
            fault?.isLate = end == .timedOut
        }
    }

    // MARK: Options

    private var isSecure: Bool { request.url.hasPrefix("https:") }

    private func setOptions(on connection: CurlConnection) throws(CurlOptionError) {
        let options = CurlOptions(on: connection)
        var endpoint = CurlEndpoint(
            url: request.url,
            socket: request.socket,
            isSecure: isSecure,
            connectTimeout: request.timeout
        )
        endpoint.offersHTTP2 = request.version == .http2
        endpoint.tls = request.tls
        endpoint.wantsNewestTLS = request.wantsNewestTLS
        endpoint.usesProxies = request.usesProxies
        try options.setEndpoint(endpoint)
        // The content is not sent before the 100, unless no 100 arrives within the timeout.
        try options.setContinueTimeout(request.timeout)
        if request.onlyConnects { try options.setConnectingOnly() }
        if request.rateLimit > 0 { try options.setRateLimit(request.rateLimit) }
        if let file = request.netrc { try options.setCredentials(fromFile: file) }
        try options.setRequest(
            request.method,
            target: nil,
            content: request.content.map { .pieces(length: $0.length) } ?? .none,
            isSecure: isSecure,
            isNew: connection.context.isReadable
        )
        connection.lines.removeAll()
        for field in request.fields { try connection.lines.add(field) }
        if !request.fields.contains(.accept) { connection.lines.add("Accept:") }
        if request.content != nil {
            if !request.fields.contains(.contentType) { connection.lines.add("Content-Type:") }
            if !request.fields.contains(.expect) { connection.lines.add("Expect:") }
        } else if [.post, .put, .patch].contains(request.method) {
            connection.lines.add("Content-Length: 0")
        }
    }

    // MARK: Callbacks of libcurl

    /// Returns true only until the request is sent, because the owner decides about a retry.
    package func mayConnect() -> Bool { !wasBegun }

    /// Notes that sending starts.
    package func mayBeginRequest() -> Bool {
        guard !wasBegun else { return false }
        wasBegun = true
        progressed()
        return true
    }

    /// Always false: there is no second try.
    package func restartContent() -> Bool { false }

    /// Always false: bytes that libcurl has not read before closing are lost.
    package var awaitsResponse: Bool { false }

    /// Checks for a request to stop, a timeout and a closed connection.
    package func watchProgress(downloaded: Int64, uploaded: Int64) -> Bool {
        let count = downloaded + uploaded
        if isStopped() { return giveUp() }
        if count != moved {
            moved = count
            progressed()
        }
        if isPaused {
            isPaused = false
            // Otherwise, libcurl would continue to ask for content that cannot be sent.
            if head == nil, context?.isHungUp ?? false {
                return giveUp(.noResponse, "the connection was closed")
            }
            pause()
            connection?.resume()
        }
        guard deadline.hasPassed else { return true }
        let limit = DurationText.text(request.timeout)
        return giveUp(.silence, "no data was sent or received for \(limit)")
    }

    /// Waits briefly while the content has no bytes, because libcurl would spin otherwise.
    ///
    /// Received bytes end the wait, unless libcurl has not read the bytes that ended the previous wait.
    private func pause() {
        guard hasReceived, let context else {
            hasReceived = true
            usleep(UInt32(Self.pauseMilliseconds) * 1000)
            return
        }
        hasReceived = !context.isReadable(within: Self.pauseMilliseconds)
    }

    /// Records why this side ends the transfer; returns false, which aborts the transfer.
    private func giveUp(
        _ kind: ClientFault.Kind = .stopped,
        _ reason: String = "ended by this side"
    ) -> Bool {
        ending = ClientFault(kind, reason)
        return false
    }

    private func progressed() {
        let isSent = wasGivenWhole || request.content == nil
        let limit = isSent && head == nil ? request.responseTimeout : nil
        deadline = .after(limit ?? request.timeout)
    }

    /// Calls the request's content.
    package func giveContent(_ buffer: UnsafeMutableRawBufferPointer) -> ContentStep {
        guard let content = request.content else { return .bytes(0) }
        // The content's own time does not count against the server.
        defer { progressed() }
        switch content.next(buffer, self) {
        case .bytes(let count):
            sent += Int64(count)
            wasGivenWhole = content.length.map { sent >= $0 } ?? (count == 0)
            return .bytes(count)
        case .later:
            isPaused = true
            return .pause
        case .reset:
            connection?.context.resets = true
            _ = giveUp()
            return .stop
        }
    }

    /// Parses heads and ignores trailers.
    package func takeHeadLine(_ line: UnsafeRawBufferPointer) -> Bool {
        guard head == nil else { return true }
        hasReceived = true
        progressed()
        var line = Array(line)
        let second = Array("HTTP/2 ".utf8)
        if line.starts(with: second) {
            isHTTP2 = true
            line.replaceSubrange(..<second.count, with: "HTTP/1.1 ".utf8)
        }
        do throws(ResponseHeadReader.Malformed) {
            let step = try line.span.bytes.withUnsafeBytes {
                bytes throws(ResponseHeadReader.Malformed) in
                try reader.take(bytes)
            }
            guard case .head(let head, _) = step else { return true }
            if head.status.code < 200 {
                let interim = ClientInterim(head: head, after: elapsed, sent: sent)
                if request.received == nil { self.interim.append(interim) }
                guard request.received?(interim) ?? true else { return giveUp() }
            } else {
                self.head = head
            }
            return true
        } catch {
            return giveUp(.noResponse, "invalid response: \(error.reason)")
        }
    }

    /// Passes content to the sink or keeps its start.
    package func takeContent(_ bytes: UnsafeRawBufferPointer) -> Bool {
        hasReceived = true
        // The sink's time does not count against the server.
        defer { progressed() }
        guard let sink = request.sink, let head else {
            content.append(contentsOf: bytes.prefix(Self.contentLimit - content.count))
            return true
        }
        return sink(head, bytes) || giveUp()
    }

    // MARK: Result

    private func fault(_ end: CurlEnd, _ text: String) -> ClientFault? {
        if let ending, ending.kind == .stopped { return ending }
        // A complete response counts even if the server then closed the connection before all content was sent.
        if end == .whole || (head != nil && request.sink == nil) { return nil }
        if let ending { return ending }
        switch end {
        case .noAddress: return ClientFault(.noAddress, text)
        // After a lost connection, libcurl tries to open a new one, and reports that `mayConnect` refused.
        case .noConnection where wasBegun:
            return ClientFault(.noResponse, "the connection was closed before a response")
        case .noConnection, .timedOut: return ClientFault(.noConnection, text)
        case .noTLS: return ClientFault(.noTLS, text, mayPass: true)
        case .untrusted, .badAuthorities, .badCertificate: return ClientFault(.noTLS, text)
        // libcurl also reports a response that is not HTTP as an unsupported scheme.
        case .badURL, .badScheme: return ClientFault(wasBegun ? .noResponse : .notTried, text)
        default: return ClientFault(.noResponse, text)
        }
    }
}
