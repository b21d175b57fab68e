// One request as a client sends it: HTTP/1.1 or HTTP/2, with every interim response, and with content that
// may wait or break the connection.
//
// An attempt on an upstream (HTTPAttempt.swift) weighs what may be repeated; here nothing is repeated or
// redirected, and nothing is judged. libcurl drives it. The invariant: no Swift error leaves a callback, and a
// connection of its own is closed when `run` returns.

import Glibc
import HTTPTypes
import SpoolgatePosix
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// One request under way, and afterwards what became of it.
///
/// One thread; runs once.
package final class ClientTransfer: CurlTransfer {
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
    /// Whether the request was about to be sent, and may have been taken.
    package private(set) var wasBegun = false
    /// Bytes of content that the connection took.
    package private(set) var uploaded: Int64 = 0
    /// For how long the answer asked to wait; nil: not at all.
    package private(set) var retryAfter: Duration?
    /// Why there is no whole answer; nil where there is one.
    package private(set) var fault: ClientFault?
    /// The time of one round trip, as connecting took it.
    package private(set) var roundTrip = Duration.zero
    /// From the beginning of the request, then from there to its end.
    package var elapsed: Duration { (end ?? .now) - start }

    /// Most content of a response that is kept.
    private static let contentLimit = 64 * 1024
    /// Between two questions to content that has nothing yet.
    private static let pauseMilliseconds: Int32 = 5

    private let request: ClientRequest
    private let isStopped: () -> Bool
    private let connection: CurlConnection?
    private var start = ContinuousClock.now
    private var end: ContinuousClock.Instant?
    private var reader = ResponseHeadReader()
    private var context: CurlContext? { connection?.context }
    private var isPaused = false
    /// Whether something was read since content had nothing.
    private var hasHeard = true
    private var wasGivenWhole = false
    /// Why this side ended it; nil: it did not.
    private var ending: ClientFault?
    private var moved: Int64 = 0
    private var deadline = Deadline.after(.zero)

    /// Makes a transfer.
    ///
    /// - Parameters:
    ///   - request: the request.
    ///   - connection: a connection that no other transfer uses, and that stays open afterwards; nil: one of
    ///     its own.
    ///   - isStopped: asked some times a second; true ends it.
    package init(
        _ request: ClientRequest,
        over connection: CurlConnection? = nil,
        isStopped: @escaping () -> Bool = { false }
    ) {
        self.request = request
        self.connection = connection ?? CurlConnection()
        self.isStopped = isStopped
    }

    /// Sends the request and takes the answer; blocks until there is one, or a fault.
    package func run() {
        start = .now
        defer { end = .now }
        deadline = .after(request.timeout * 2)
        guard let connection else {
            fault = ClientFault(.notTried, "there is no memory for a connection")
            return
        }
        connection.reset()
        // Who waits long for an answer learns all the same that nobody is there any more.
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
            fault?.tls = connection.tlsTrouble(of: end)
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
        endpoint.certificateAuthority = request.certificateAuthority
        endpoint.clientCertificate = request.clientCertificate
        endpoint.clientKey = request.clientKey
        endpoint.wantsNewestTLS = request.wantsNewestTLS
        endpoint.usesProxies = request.usesProxies
        try options.setEndpoint(endpoint)
        // A server that has not said 100 by then is asked no longer.
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

    // MARK: What libcurl calls

    /// Only for the first request: what is to be repeated is its owner's to say.
    package func mayConnect() -> Bool { !wasBegun }

    /// Called with a connection ready, before the first byte of the request.
    package func mayBeginRequest() -> Bool {
        guard !wasBegun else { return false }
        wasBegun = true
        progressed()
        return true
    }

    /// There is no second try.
    package func restartContent() -> Bool { false }

    /// What came before the connection was closed is read by libcurl, or lost.
    package var awaitsAnswer: Bool { false }

    /// Called after every step and at least once a second; false: give up.
    package func watchProgress(downloaded: Int64, uploaded: Int64) -> Bool {
        let count = downloaded + uploaded
        if isStopped() { return giveUp() }
        if count != moved {
            moved = count
            progressed()
        }
        if isPaused {
            isPaused = false
            // libcurl would go on asking for content that it can send to nobody.
            if head == nil, context?.isHungUp ?? false {
                return giveUp(.noAnswer, "the connection was closed")
            }
            pause()
            connection?.resume()
        }
        guard deadline.hasPassed else { return true }
        let limit = DurationText.text(request.timeout)
        return giveUp(.silence, "nothing came or went for \(limit)")
    }

    /// Waits a moment while content has nothing to give: libcurl goes on at once with what it is allowed to, and would
    /// spin.
    ///
    /// What the other side says ends it: content may wait for that. But not if nothing of it could be read the last
    /// time.
    private func pause() {
        guard hasHeard, let context else {
            hasHeard = true
            usleep(UInt32(Self.pauseMilliseconds) * 1000)
            return
        }
        hasHeard = !context.isReadable(within: Self.pauseMilliseconds)
    }

    /// Ends the transfer from this side; false, as libcurl wants to hear it.
    private func giveUp(
        _ kind: ClientFault.Kind = .stopped,
        _ reason: String = "ended from this side"
    ) -> Bool {
        ending = ClientFault(kind, reason)
        return false
    }

    private func progressed() {
        let isSent = wasGivenWhole || request.content == nil
        let limit = isSent && head == nil ? request.answerTimeout : nil
        deadline = .after(limit ?? request.timeout)
    }

    /// Fills `buffer` with the next content.
    package func giveContent(_ buffer: UnsafeMutableRawBufferPointer) -> ContentStep {
        guard let content = request.content else { return .bytes(0) }
        // Its own time is not the server's.
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

    /// Takes one line of a head, or of the trailer section; false: give up.
    package func takeHeadLine(_ line: UnsafeRawBufferPointer) -> Bool {
        // Trailers.
        guard head == nil else { return true }
        hasHeard = true
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
                if request.heard == nil { self.interim.append(interim) }
                guard request.heard?(interim) ?? true else { return giveUp() }
            } else {
                self.head = head
            }
            return true
        } catch {
            return giveUp(.noAnswer, "what came is no response: \(error.reason)")
        }
    }

    /// Takes content of the final response; false: give up.
    package func takeContent(_ bytes: UnsafeRawBufferPointer) -> Bool {
        hasHeard = true
        // The time of whoever takes it is not the server's.
        defer { progressed() }
        guard let sink = request.sink, let head else {
            content.append(contentsOf: bytes.prefix(Self.contentLimit - content.count))
            return true
        }
        return sink(head, bytes) || giveUp()
    }

    // MARK: The end

    private func fault(_ end: CurlEnd, _ text: String) -> ClientFault? {
        if let ending, ending.kind == .stopped { return ending }
        // A server that answered whole and then broke the sending off has answered.
        if end == .whole || (head != nil && request.sink == nil) { return nil }
        if let ending { return ending }
        switch end {
        case .noAddress: return ClientFault(.noAddress, text)
        // libcurl would begin anew over another connection, which is not allowed, and then reports that one.
        case .noConnection where wasBegun:
            return ClientFault(.noAnswer, "the connection was closed before an answer")
        case .noConnection, .timedOut: return ClientFault(.noConnection, text)
        case .noTLS: return ClientFault(.noTLS, text, mayPass: true)
        case .untrusted, .badAuthorities, .badCertificate: return ClientFault(.noTLS, text)
        // libcurl also reports an answer that is not HTTP as a scheme that it does not speak.
        case .badURL, .badScheme: return ClientFault(wasBegun ? .noAnswer : .notTried, text)
        default: return ClientFault(.noAnswer, text)
        }
    }
}
