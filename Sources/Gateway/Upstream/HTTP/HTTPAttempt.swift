// One request over HTTP/1.1, from the connection to the final response.
//
// libcurl drives the exchange; this type checks the timeouts, and decides on repetitions and the outcome. Not
// thread-safe.
//
// A server may close a kept connection at any moment, also because of an earlier request, such as one whose content it
// did not read. Invariant: unless the settings allow more, only a request that libcurl repeats in this case
// (`mayRepeat`) uses a kept connection. Other requests open a new one, so that no request fails because of another
// client's.
//
// libcurl 7.88 repeats a request of any method on its own if a *kept* connection ends before the first byte of a
// response (`Curl_retry_request`). Every repetition first opens a socket and calls `CURLOPT_PREREQFUNCTION`, and both
// callbacks check `startsAgain`.

import HTTPTypes
import SpoolgateCurl
import SpoolgatePosix
import SpoolgateUploadProtocol

final class HTTPAttempt: CurlTransfer {
    private let reasons: AttemptReasons
    private let connection: CurlConnection
    private let sink: any ResponseSink
    private let source: ContentSource?

    /// The outcome, if the gateway stopped libcurl.
    private var stopReason: AttemptOutcome?
    let reading: ResponseReading

    private var starts = 0
    /// Whether an earlier connection has taken any byte of the request.
    private var wasTakenBefore = false
    private var isPerforming = false
    private var isPaused = false
    /// The content position at which sending last paused to read an early response.
    private var pausedAt: Int64?
    /// The number of content bytes given to libcurl at once; nil if it requests pieces, or there is no content.
    private var wholeLength: Int64?
    /// Whether the connection may be kept: after a complete exchange that did not authenticate a client for the whole
    /// connection.
    private(set) var mayKeepConnection = false
    /// Whether the upstream responded before it received the whole request.
    private var hasEarlyResponse = false
    private var authenticatesConnection = false
    /// Whether libcurl was called; false if the request could not be prepared.
    private(set) var wasTried = false
    var canGoElsewhere: Bool { source?.canRestart ?? true }

    private var deadline = Deadline.after(.zero)
    private var lastProgress: (uploaded: Int64, unsent: Int32, isSending: Bool) = (0, 0, true)
    /// When to call the sink next and check how many bytes the socket has not sent.
    private var nextLook = Deadline.after(.zero)
    /// The minimum interval between these calls, because libcurl reports more often.
    private static let lookInterval = Duration.milliseconds(100)

    /// No other attempt may use `connection` at the same time.
    init(
        _ request: UpstreamRequest,
        to location: UpstreamLocation,
        settings: UpstreamSettings,
        over connection: CurlConnection,
        sink: any ResponseSink
    ) {
        reasons = AttemptReasons(request, to: location, settings)
        self.connection = connection
        self.sink = sink
        reading = ResponseReading(reasons, to: sink)
        source =
            request.method == .head || request.content.isInMemory
            ? nil : ContentSource(request.content)
    }

    /// Blocks until the response is complete or the attempt fails.
    func run() -> AttemptOutcome {
        guard request.method != .head else { return send(.none) }
        if let outcome = request.content.withBytesInMemory({ sendWhole($0) }) { return outcome }
        guard let source else { return send(.none) }
        guard source.isRepeatable, let length = source.length, length < CurlOptions.inlineLimit
        else {
            return send(.pieces(length: source.length))
        }
        do {
            // libcurl sends content this small together with the head if the content is read now.
            return try source.all(length).withUnsafeBytes { sendWhole($0) }
        } catch {
            return .abandoned(reason: "\(purpose): cannot read the content: \(error)")
        }
    }

    private func sendWhole(_ content: UnsafeRawBufferPointer) -> AttemptOutcome {
        guard !content.isEmpty else { return send(.none) }
        wholeLength = Int64(content.count)
        return send(.whole(content))
    }

    private func send(_ content: HandedContent) -> AttemptOutcome {
        guard let target = reasons.location.requestTarget(reasons.request.target) else {
            return .notReached(
                reason: "\(purpose) was not attempted: its request target has spaces or control "
                    + "characters"
            )
        }
        do throws(CurlOptionError) {
            try setOptions(target, content)
        } catch {
            return .notTried(reason: "\(purpose) was not attempted: \(error.reason)")
        }
        wasTried = true
        let outcome = outcome(connection.perform(for: self))
        // A failed transfer may leave its buffer behind, and the handle then refuses options forever (7.88). The
        // credentials of one client must never apply to the request of another.
        let isWhole = outcome == .responded || reading.redirect != nil && reading.isWhole
        mayKeepConnection =
            isWhole && !authenticatesConnection && !reading.authenticatesConnection
        connection.isSpent = hasEarlyResponse
        // libcurl counts repetitions over all transfers of a handle, and gives up at the sixth (`Curl_retry_request`).
        if starts > 1 { connection.reset() }
        return outcome
    }

    private func setOptions(
        _ target: String,
        _ content: HandedContent
    ) throws(CurlOptionError) {
        let options = CurlOptions(on: connection)
        let location = reasons.location
        if !connection.isPrepared {
            try options.setEndpoint(location.endpoint(reasons.settings))
            connection.isPrepared = true
        }
        try options.setRequest(
            request.method,
            target: target,
            content: content,
            isSecure: location.isSecure,
            // Bytes received before a request are not its response (RFC 9112 §9.2), so a new connection is used.
            isNew: !mayRepeat && reasons.settings.reuse == .safe || request.needsNewConnection
                || connection.isSpent || connection.context.isReadable
        )
        authenticatesConnection = try connection.lines.replace(
            by: request,
            to: location,
            content: content
        )
    }

    private var request: UpstreamRequest { reasons.request }
    private var purpose: String { reasons.purpose }
    private var isSecure: Bool { reasons.location.isSecure }
    private var stallTimeout: Duration { reasons.settings.stallTimeout }
    private var responseTimeout: Duration { reasons.settings.responseTimeout }

    // MARK: Starting and repeating

    /// Whether libcurl may and can send the request again if a kept connection is closed without a response.
    ///
    /// libcurl repeats a request after a failed read, but not after a failed write of content that follows the head.
    private var mayRepeat: Bool { request.isRepeatable && !isSentInPieces }

    func mayConnect() -> Bool { starts == 0 || startsAgain() }

    func mayBeginRequest() -> Bool {
        guard starts == 0 || startsAgain(), starts < 2 else { return false }
        starts += 1
        connection.context.forgetLastWords()
        deadline = .after(stallTimeout)
        lastProgress = (0, 0, true)
        if isSentInPieces { connection.context.cork() }
        return true
    }

    private func startsAgain() -> Bool {
        // Bytes that this connection took must still count after the next one begins, because libcurl then counts from
        // zero.
        wasTakenBefore = wasTaken
        return mayRepeat
    }

    /// Whether any byte of the request may have been sent, on any connection.
    ///
    /// A failed write over TLS may have sent whole records, so an attempted write counts as sent.
    private var wasTaken: Bool {
        guard starts > 0 else { return false }
        return wasTakenBefore || isSecure || isPerforming || connection.requestSize > 0
    }

    // MARK: Sending

    func giveContent(_ buffer: UnsafeMutableRawBufferPointer) -> ContentStep {
        guard let source else { return .bytes(0) }
        do {
            let position = source.position
            let count = try source.read(into: buffer)
            // An upstream that responds early soon closes its end, and a later write would fail and discard the
            // response. Received bytes are therefore read first: once at each position, because libcurl reads before it
            // requests content again.
            if count > 0, position != pausedAt, connection.context.isReadable {
                source.putBack(.init(rebasing: UnsafeRawBufferPointer(buffer)[..<count]))
                pausedAt = position
                isPaused = true
                return .pause
            }
            deadline = .after(stallTimeout)
            return .bytes(count)
        } catch {
            stopReason = .abandoned(reason: "\(purpose): cannot read the content: \(error)")
            return .stop
        }
    }

    /// Only content in memory is sent again, which libcurl reads itself.
    func restartContent() -> Bool { false }

    /// Sends a held head, calls the sink and checks the timeouts.
    ///
    /// Called after every step of libcurl and at least once a second. Returns false if the attempt must end.
    func watchProgress(downloaded: Int64, uploaded: Int64) -> Bool {
        guard starts > 0 else { return true }
        isPerforming = true
        if uploaded > 0 || source.map({ $0.position > 0 || $0.isAtEnd }) ?? false {
            connection.context.uncork()
        }
        if isPaused {
            isPaused = false
            connection.resume()
        }
        // Without progress, only the timeouts need a check.
        let isSending = isSending(uploaded)
        let isDue = nextLook.hasPassed
        guard isDue || uploaded != lastProgress.uploaded || isSending != lastProgress.isSending
        else {
            return true
        }
        if isDue { reportToSink() }
        let seen = (uploaded, isDue ? connection.context.unsent : lastProgress.unsent, isSending)
        if seen != lastProgress {
            lastProgress = seen
            progressed()
        }
        guard deadline.hasPassed else { return true }
        stopReason = .indeterminate(
            reason: reasons.silence(
                sent: lastProgress.isSending ? lastProgress.uploaded : nil,
                hasHead: reading.hasFinalHead
            ),
            timedOut: true
        )
        return false
    }

    /// Calls the sink's `onProgress`.
    ///
    /// The time of this call does not count towards the upstream's timeouts. Not called while connecting, because
    /// libcurl's connect timeout would include the sink's time.
    private func reportToSink() {
        let left = deadline.remaining
        sink.onProgress()
        deadline = .after(left)
        nextLook = .after(Self.lookInterval)
    }

    /// Whether the content is sent after the head, instead of with it.
    private var isSentInPieces: Bool {
        if let wholeLength { return wholeLength >= CurlOptions.inlineLimit }
        return source != nil
    }

    private func isSending(_ uploaded: Int64) -> Bool {
        isSentInPieces && !reading.hasFinalHead && !isWritten(uploaded)
    }

    /// Whether `uploaded`, the number of bytes that libcurl has written, is the whole content.
    private func isWritten(_ uploaded: Int64) -> Bool {
        if let length = wholeLength ?? source?.length { return uploaded >= length }
        guard let source else { return true }
        return source.isAtEnd && uploaded >= source.position
    }

    private func progressed() {
        deadline = .after(lastProgress.isSending ? stallTimeout : responseTimeout)
    }

    // MARK: Receiving

    func takeHeadLine(_ line: UnsafeRawBufferPointer) -> Bool {
        let heads = reading.headCount
        let outcome = reading.takeHeadLine(line)
        // Lines of a head that does not end are not progress.
        guard reading.headCount > heads else { return keep(outcome) }
        if reading.hasFinalHead {
            // The upstream may take the rest of the content for the next request.
            hasEarlyResponse = !isWritten(connection.uploaded) || connection.context.unsent > 0
            // The socket's buffers may hold content that a server refused without reading it.
            if reading.isRefusal, wholeLength != nil || source != nil { hasEarlyResponse = true }
        }
        progressed()
        return keep(outcome)
    }

    func takeContent(_ content: UnsafeRawBufferPointer) -> Bool {
        defer { progressed() }
        return keep(reading.takeContent(content))
    }

    private func keep(_ reason: AttemptOutcome?) -> Bool {
        stopReason = stopReason ?? reason
        return reason == nil
    }

    var awaitsResponse: Bool { starts > 0 && !reading.hasFinalHead && !isSecure }

    /// Reads the response of an upstream that closed the connection before it read the whole request.
    ///
    /// Necessary because libcurl stops reading after a failed write.
    func receiveLastResponse() {
        guard awaitsResponse else { return }
        hasEarlyResponse = true
        _ = keep(reading.takeWhole(connection.context.lastWords))
    }

    // MARK: The final response

    private func outcome(_ end: CurlEnd) -> AttemptOutcome {
        if end == .sendFailed { receiveLastResponse() }
        if let target = reading.redirect {
            return .redirected(to: target)
        }
        if let stopReason { return stopReason }
        // A complete response counts even if the upstream then stopped reading the request.
        if reading.isWhole || reading.hasFinalHead && end == .whole { return .responded }
        if end == .whole {
            return .indeterminate(
                reason:
                    "\(purpose) was sent, but the connection was closed within the response's header section; "
                    + "check the server's log"
            )
        }
        let socket = reasons.location.socket
        let fault = end == .noConnection && socket == nil ? connection.connectionFault : nil
        let text = fault ?? connection.explanation(of: end, socket: socket)
        let timedOut = end == .timedOut
        guard wasTaken else {
            let lacksDescriptors = end == .noConnection && connection.context.lacksDescriptors
            if end.isOfProcess || lacksDescriptors {
                let text =
                    lacksDescriptors
                    ? "this process has no free file descriptor; raise LimitNOFILE"
                    : text
                return .notTried(reason: "\(purpose) was not attempted: \(text)")
            }
            return .notReached(reason: reasons.unreached(end, text), timedOut: timedOut)
        }
        if reading.hasFinalHead {
            return .indeterminate(
                reason: "\(purpose): the response was truncated: \(text); check the server's log"
            )
        }
        // libcurl reports these if it may not, or cannot, repeat the request on a second connection.
        let isClosed = end == .stopped || end == .noConnection
        return .indeterminate(
            reason: reasons.withoutResponse(isClosed ? "the kept connection was closed" : text),
            timedOut: timedOut
        )
    }
}

// MARK: Field lines

// The field lines of an attempt, and the lines that prevent libcurl from adding its own.
//
// Invariant: libcurl sets the framing fields, and exactly one `Host` is sent.

extension FieldLines {
    /// Replaces all lines with those of `request`, and returns whether the request's credentials authenticate the
    /// connection.
    mutating func replace(
        by request: UpstreamRequest,
        to location: UpstreamLocation,
        content: HandedContent
    ) throws(CurlOptionError) -> Bool {
        removeAll()
        var authenticates = false
        var host: HTTPField?
        var (hasAccept, hasContentType) = (false, false)
        for field in request.fields {
            let name = field.name.canonicalName
            if ownFields.contains(name) {
                if host == nil, name == "host", !field.value.isEmpty { host = field }
                continue
            }
            if name == "authorization" {
                authenticates = authenticates || field.authenticatesConnection
            }
            hasAccept = hasAccept || name == "accept"
            hasContentType = hasContentType || name == "content-type"
            try add(field)
        }
        let hostField = host ?? HTTPField(name: .host, value: location.authority)
        try add(hostField)
        if let destination = request.destination {
            // Servers refuse a scheme or host that differs from the request's (RFC 4918 §10.3; Apache: 502).
            let origin = "\(location.isSecure ? "https" : "http")://\(hostField.value)"
            try add(
                HTTPField(name: .destination, value: origin + location.basePath + destination)
            )
        }
        if !hasAccept { add("Accept:") }
        switch content {
        case .none:
            // The method allows content, but the request has none (RFC 9110 §8.6).
            if [.post, .put, .patch].contains(request.method) {
                add("Content-Length: 0")
            }
        case .whole, .pieces:
            if !hasContentType { add("Content-Type:") }
            add("Expect:")
        }
        return authenticates
    }
}

private let ownFields = FieldNameSet([
    "host", "content-length", "transfer-encoding", "expect", "connection", "upgrade",
    "keep-alive", "te",
])
