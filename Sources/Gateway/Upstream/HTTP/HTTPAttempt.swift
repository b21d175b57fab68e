// One request over HTTP/1.1, from the connection to the final response.
//
// libcurl drives the exchange and calls back (`CurlTransfer`); this type decides: when the
// upstream has been silent for too long, whether a request may be sent a second time, when a held
// head may go, what a response is, and what the end of it all means. It is used by one thread.
//
// About the second time. libcurl 7.88 repeats a request by itself, whatever its method, when a
// *kept* connection ends before the first byte of a response (Curl_retry_request, up to five
// times; CURLOPT_SEEKFUNCTION matters only once content bytes were sent, so it cannot stop a POST
// of small content). Every such repetition opens a socket first and asks CURLOPT_PREREQFUNCTION
// before it sends, and both ask `mayRepeat` here. The invariant: a request that may not be
// repeated is never sent again after one byte of it was taken by a connection.

import HTTPTypes
import SpoolgateCurl
import SpoolgatePosix
import SpoolgateUploadProtocol

/// One attempt over HTTP.
final class HTTPAttempt: CurlTransfer {
    private let reasons: AttemptReasons
    private let connection: CurlConnection
    private let sink: any ResponseSink
    private let source: ContentSource?

    /// Why we told libcurl to stop.
    private var stopReason: AttemptOutcome?
    private(set) var reading: ResponseReading

    /// How many times the request was about to be sent.
    private var starts = 0
    private var mayStartAgain = false
    /// Whether a connection that ended had taken any byte of the request.
    private var wasTakenBefore = false
    private var isPerforming = false
    private var isPaused = false
    /// Where in the content the upstream was last listened to first.
    private var pausedAt: Int64?
    /// Bytes of content that libcurl has whole, in memory; nil: it asks for the pieces, or there is none.
    private var wholeLength: Int64?
    /// Whether the next request may use the connection: after a whole exchange that has authenticated no client
    /// to it.
    private(set) var mayKeepConnection = false
    /// Whether the request's credentials hold for the connection.
    private var authenticatesConnection = false
    /// Whether libcurl was asked to send the request; false: nobody could.
    private(set) var wasTried = false
    /// Whether another attempt can send the whole content.
    var canGoElsewhere: Bool { source?.canRestart ?? true }

    private var deadline = Deadline.after(.zero)
    private var lastSeen: (uploaded: Int64, unsent: Int32, isSending: Bool) = (0, 0, true)
    /// When to tell the sink again, and to ask the system what of the content is still with it.
    private var nextLook = Deadline.after(.zero)
    /// libcurl reports several times a request; the deadlines need no better answer than this.
    private static let lookInterval = Duration.milliseconds(100)

    /// Makes an attempt over a connection that no other attempt uses.
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

    /// Sends the request and passes the response on.
    ///
    /// Blocks until there is a final response.
    func run() -> AttemptOutcome {
        guard request.method != .head else { return send(.none) }
        if let outcome = request.content.withBytesInMemory({ sendWhole($0) }) { return outcome }
        guard let source else { return send(.none) }
        guard source.isRepeatable, let length = source.length, length < CurlOptions.inlineLimit
        else {
            return send(.pieces(length: source.length))
        }
        do {
            // So little is best read now: libcurl then sends it with the head.
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
        // A transfer that failed may leave its buffer behind, and the handle then refuses options for ever (7.88).
        // And the credentials of one client must never serve another one.
        let isWhole = outcome == .answered || reading.redirect != nil && reading.isWhole
        mayKeepConnection =
            isWhole && !authenticatesConnection && !reading.authenticatesConnection
        // libcurl counts how often it has repeated a request, over all transfers of a handle, and gives
        // up at the sixth time (Curl_retry_request): a handle that may have done so begins anew.
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
            // Bytes that came without a request are no answer to the next one (RFC 9112 §9.2).
            isNew: connection.context.isReadable
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

    // MARK: Starting, and starting again

    /// Whether a socket may be opened: for the first try always.
    func mayConnect() -> Bool { starts == 0 || mayRepeat() }

    /// Called with a connection ready, before the first byte of the request.
    func mayBeginRequest() -> Bool {
        guard starts == 0 || mayRepeat(), starts < 2 else { return false }
        starts += 1
        connection.context.forgetLastWords()
        deadline = .after(stallTimeout)
        lastSeen = (0, 0, true)
        if isSentInPieces { connection.context.cork() }
        return true
    }

    private func mayRepeat() -> Bool {
        if mayStartAgain { return true }
        // What this connection took must count also after the next one has begun: libcurl counts from nothing then.
        wasTakenBefore = wasTaken
        let canReadAgain = wholeLength != nil || source?.canRestart ?? true
        mayStartAgain = canReadAgain && (request.isRepeatable || !wasTakenBefore)
        return mayStartAgain
    }

    /// Whether any byte of the request can have left.
    ///
    /// Under TLS a write that failed may have left whole records behind, so there it is enough
    /// that a write was tried.
    private var wasTaken: Bool {
        guard starts > 0 else { return false }
        return wasTakenBefore || isSecure || isPerforming || connection.requestSize > 0
    }

    // MARK: Sending

    /// Fills `buffer` with the next content.
    func giveContent(_ buffer: UnsafeMutableRawBufferPointer) -> ContentStep {
        guard let source else { return .bytes(0) }
        do {
            let position = source.position
            let count = try source.read(into: buffer)
            // An upstream that answers early closes its end soon after; a write to that end would
            // fail and take the answer along. So what it said is read before more is written: once
            // at each position, since libcurl reads before it asks again.
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

    /// Goes back to the start of the content for a second try.
    func restartContent() -> Bool {
        pausedAt = nil
        return source?.restart() ?? true
    }

    /// Called after every step and at least once a second: lets a held head go, tells the sink and
    /// watches the deadlines.
    ///
    /// False: give up.
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
        // libcurl reports after each of its steps: but for progress, the time alone is worth a look.
        let isSending = isSending(uploaded)
        let isDue = nextLook.hasPassed
        guard isDue || uploaded != lastSeen.uploaded || isSending != lastSeen.isSending else {
            return true
        }
        if isDue { tellSink() }
        let seen = (uploaded, isDue ? connection.context.unsent : lastSeen.unsent, isSending)
        if seen != lastSeen {
            lastSeen = seen
            progressed()
        }
        guard deadline.hasPassed else { return true }
        stopReason = .indeterminate(
            reason: reasons.silence(
                sent: lastSeen.isSending ? lastSeen.uploaded : nil,
                hasHead: reading.hasFinalHead
            ),
            timedOut: true
        )
        return false
    }

    /// Not while connecting: that has a deadline of libcurl's own, which would run on meanwhile.
    private func tellSink() {
        let left = deadline.remaining
        sink.onProgress()
        deadline = .after(left)
        nextLook = .after(Self.lookInterval)
    }

    /// Whether the content leaves behind the head, not with it.
    private var isSentInPieces: Bool {
        if let wholeLength { return wholeLength >= CurlOptions.inlineLimit }
        return source != nil
    }

    private func isSending(_ uploaded: Int64) -> Bool {
        guard isSentInPieces, !reading.hasFinalHead else { return false }
        if let length = wholeLength ?? source?.length { return uploaded < length }
        guard let source else { return false }
        return !source.isAtEnd || uploaded < source.position
    }

    private func progressed() {
        deadline = .after(lastSeen.isSending ? stallTimeout : responseTimeout)
    }

    // MARK: Receiving

    /// Takes one line of a head, or of the trailer section; false: give up.
    func takeHeadLine(_ line: UnsafeRawBufferPointer) -> Bool {
        let heads = reading.headCount
        // A head that never ends is no progress.
        defer { if reading.headCount > heads { progressed() } }
        return keep(reading.takeHeadLine(line))
    }

    /// Takes content of the final response; false: give up.
    func takeContent(_ content: UnsafeRawBufferPointer) -> Bool {
        defer { progressed() }
        return keep(reading.takeContent(content))
    }

    private func keep(_ reason: AttemptOutcome?) -> Bool {
        stopReason = stopReason ?? reason
        return reason == nil
    }

    /// Whether what the upstream says now may be the answer, readable without TLS.
    var awaitsAnswer: Bool { starts > 0 && !reading.hasFinalHead && !isSecure }

    /// Takes the answer of an upstream that closed before it had read the whole request; libcurl
    /// does not read any more once a write has failed.
    func hearLastWords() {
        guard awaitsAnswer else { return }
        _ = keep(reading.takeWhole(connection.context.lastWords))
    }

    // MARK: The final response

    private func outcome(_ end: CurlEnd) -> AttemptOutcome {
        if end == .sendFailed { hearLastWords() }
        if let target = reading.redirect {
            return .redirected(to: target)
        }
        if let stopReason { return stopReason }
        // An upstream that answered whole and then broke the sending off has answered.
        if reading.isWhole || reading.hasFinalHead && end == .whole { return .answered }
        if end == .whole {
            return .indeterminate(
                reason:
                    "\(purpose) was sent, but the connection was closed within the response's header section"
            )
        }
        let text = connection.explanation(of: end, socket: reasons.location.socket)
        let timedOut = end == .timedOut
        guard wasTaken else {
            let lacksDescriptors = end == .noConnection && connection.context.lacksDescriptors
            if end.isOfProcess || lacksDescriptors {
                let text = lacksDescriptors ? "this process has no free file descriptor" : text
                return .notTried(reason: "\(purpose) was not attempted: \(text)")
            }
            return .notReached(reason: reasons.unreached(end, text), timedOut: timedOut)
        }
        if reading.hasFinalHead {
            return .indeterminate(reason: "\(purpose): the response was truncated: \(text)")
        }
        // The latter is how libcurl reports a socket that `mayConnect` did not allow.
        let isRefusal = end == .stopped || end == .noConnection
        if starts > 0, !mayStartAgain, isRefusal {
            return .indeterminate(
                reason:
                    "\(purpose) was sent on a kept connection, which was closed without a response; it was not "
                    + "repeated because that is not safe"
            )
        }
        return .indeterminate(reason: reasons.unanswered(text), timedOut: timedOut)
    }
}
