// One FastCGI request as an `Exchange`.
//
// Invariants: the exchange never blocks while it has bytes for its caller. Content ends properly only if the web server
// reported the end and every byte arrived.

import HTTPTypes
package import SpoolgateExchange
package import SpoolgatePosix
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// One request on one connection.
package final class FastCGIExchange: Exchange {
    package let head: Result<RequestHead, Refusal>
    package let context: ExchangeContext
    /// Asks this request, and never a later one on the connection, to stop receiving.
    package let interrupt: @Sendable () -> Void

    package var beforeHead: ((inout ResponseHead) -> Void)?
    let connection: Connection
    var reader: RecordReader
    var writer: RecordWriter
    let keepsConnection: Bool
    private let stallTimeout: Duration
    /// Whether the connection's receive timeout has been set to the one for content.
    private var isLimited = false
    private var alarm: Alarm?
    /// Whether the exchange has ended and must not use the connection any more.
    var isEnded = false
    var incoming: Incoming
    var outgoing = Outgoing.nothing
    /// The number of bytes that nginx has reported as written into the file.
    var laneCount: Int64 = 0
    /// How the records ended while nginx was writing.
    var laneEnd = RecordReader.End.none

    enum Incoming {
        /// More content is expected; `remaining` is nil if the length is unknown.
        case content(remaining: Int64?)
        /// The content ended properly; `sawEnd` is true if the record that ends it was read.
        case ended(sawEnd: Bool)
        case failed(ContentError)
    }

    enum Outgoing: Equatable {
        case nothing
        /// The head was sent, and content may follow; `remaining` is nil if no length was given.
        case content(remaining: Int64?)
        /// The head was sent, and the response cannot have content.
        case headOnly
        case gone
        case aborted
    }

    init(
        _ head: Result<RequestHead, Refusal>,
        _ context: ExchangeContext,
        of beginning: RequestBeginning,
        reader: RecordReader,
        stallTimeout: Duration,
        interrupt: @escaping @Sendable () -> Void
    ) {
        connection = reader.connection
        self.reader = reader
        writer = RecordWriter(connection, id: beginning.id)
        keepsConnection = beginning.keepsConnection
        self.stallTimeout = stallTimeout
        self.interrupt = interrupt
        self.head = head
        self.context = context
        incoming =
            switch (try? head.get())?.contentLength {  // A refused head has no length.
            case .known(0): .ended(sawEnd: false)
            case .known(let length): .content(remaining: length)
            case .unknown, nil: .content(remaining: nil)
            }
    }

    /// Whether the web server has closed its side.
    ///
    /// A web server sends the request and then waits, so a closed side means that the web server has given up the
    /// request, even if all content had arrived (nginx after a 504, or after its client disconnected).
    package var isPeerGone: Bool {
        switch outgoing {
        case .gone, .aborted: true
        case .nothing, .content, .headOnly: isEnded || connection.isHungUp
        }
    }
}

// MARK: Receiving

extension FastCGIExchange {
    /// How many bytes of a buffer may stay in memory during a wait, because thousands of clients may stall at a time.
    private static let keptBytes = 32 << 10

    /// The time without content after which a wait is treated as long.
    ///
    /// If the web server is slightly slower than the gateway, the socket becomes empty hundreds of times per gibibyte.
    /// Releasing memory each time would cost page faults and interrupt all processors.
    private static let breath = Duration.milliseconds(100)

    /// Adds content to `buffer`, which must have room; waits only for the first bytes.
    ///
    /// - Returns: false after CONTENT_LENGTH bytes, or at the end record if the length is unknown.
    /// - Throws: `ContentError`, once all earlier bytes have been returned.
    package func receive(into buffer: ContentBuffer) throws(ContentError) -> Bool {
        if case .content = incoming { releaseIfStalled(buffer) }
        var added = 0
        buffer.fill { free in
            precondition(!free.isEmpty, "receiving into a full buffer")
            added = take(into: free)
            return added
        }
        // The next call throws an error that followed these bytes.
        if added > 0 { return true }
        switch incoming {
        case .failed(let error): throw error
        case .ended: return false
        // The alarm rang.
        case .content: return true
        }
    }

    /// Sets the alarm that ends waits for content, or removes it.
    package func setAlarm(_ alarm: Alarm?) { self.alarm = alarm }

    private func releaseIfStalled(_ buffer: ContentBuffer) {
        guard buffer.count == 0, buffer.touched > Self.keptBytes, !reader.hasBytes,
            !connection.isReadable(within: Self.breath)
        else { return }
        buffer.releasePages()
        Thread.releaseStack()
    }

    private func take(into free: UnsafeMutableRawBufferPointer) -> Int {
        guard case .content(let remaining) = incoming else { return 0 }
        guard !isEnded else {
            incoming = .failed(.released)
            return 0
        }
        let maximum = remaining.map { Int(min($0, Int64(free.count))) } ?? free.count
        let room = UnsafeMutableRawBufferPointer(rebasing: free.prefix(maximum))
        var (count, end) = (0, RecordReader.End.none)
        // After a request to stop receiving, only bytes that have already been read are returned, so that a fast sender
        // is stopped.
        if reader.hasBytes { (count, end) = reader.receive(into: room, waits: false) }
        while count == 0, end == .none {
            // The caller reads content, so nginx must send it.
            if reader.lane == .offered { decline() }
            guard let read = wait(for: room) else { break }
            (count, end) = read
        }
        incoming = after(count, end, remaining: remaining)
        return count
    }

    /// Reads until something arrives, at most as much content as fits into `room`; returns nil if the alarm rang first.
    func wait(for room: UnsafeMutableRawBufferPointer) -> (count: Int, end: RecordReader.End)? {
        limitReceiving()
        guard connection.beginWaiting() else { return (0, .broken) }
        defer { connection.stopWaiting() }
        guard let alarm else { return reader.receive(into: room, waits: true) }
        while true {
            switch connection.wait(or: alarm, within: stallTimeout) {
            case .alarm: return nil
            case .nothing: return (0, .stalled)
            case .readable:
                let read = reader.receive(into: room, waits: false)
                // Only a part of a record may have arrived.
                if read.count > 0 || read.end != .none || reader.hasNews { return read }
            }
        }
    }

    private func limitReceiving() {
        guard !isLimited else { return }
        isLimited = true
        // Reading the head used more of the stack than this wait does.
        if !connection.isReadable(within: Self.breath) { Thread.releaseStack() }
        connection.setReceiveTimeout(stallTimeout)
    }

    /// Returns the state of the content after `count` more bytes.
    ///
    /// Content with a known length ends with its last byte, because some web servers send the end record late or never.
    /// Bytes beyond the length make the message malformed.
    func after(_ count: Int, _ end: RecordReader.End, remaining: Int64?) -> Incoming {
        let remaining = remaining.map { $0 - Int64(count) }
        if remaining == 0, end != .broken {
            if reader.isInContent { return .failed(.truncated) }
            return .ended(sawEnd: end == .proper)
        }
        switch end {
        case .none: return .content(remaining: remaining)
        case .proper: return remaining == nil ? .ended(sawEnd: true) : .failed(.truncated)
        case .stalled: return .failed(.stalled)
        case .broken: return .failed(connection.isReleased ? .released : .truncated)
        }
    }
}

// MARK: Sending

extension FastCGIExchange {
    /// Sends an interim head at once if the web server forwards its status and the final head has not been sent.
    @discardableResult
    package func send(interim head: ResponseHead) -> Bool {
        guard context.interimStatuses.contains(head.status.code), outgoing == .nothing, !isEnded
        else { return false }
        var head = head
        beforeHead?(&head)
        let bytes = ResponseBytes.interim(head)
        let isSent = bytes.withBytes { writer.write(UnsafeRawBufferPointer($0)) } && writer.flush()
        if !isSent { outgoing = .gone }
        return isSent
    }

    /// Sends the final head, once.
    ///
    /// - Throws: `ClientGone` if the web server has disconnected or does not read, or if a final head was already sent.
    package func send(head: ResponseHead, contentLength: Int64?) throws(ClientGone) {
        var head = head
        beforeHead?(&head)
        guard outgoing == .nothing, !isEnded else { throw ClientGone() }
        let hasContent = !isHeadRequest && head.status.code != 204 && head.status.code != 304
        let bytes = ResponseBytes.final(
            head,
            contentLength: contentLength,
            hasContent: hasContent
        )
        outgoing = hasContent ? .content(remaining: contentLength) : .headOnly
        // All interim responses were sent at once.
        writer.discard()
        try require(sent: bytes.withBytes { writer.write(UnsafeRawBufferPointer($0)) })
    }

    /// Sends content, up to the announced length; does nothing for HEAD, 204 and 304.
    ///
    /// - Throws: `ClientGone` if the web server has disconnected or does not read.
    package func send(content: RawSpan) throws(ClientGone) {
        switch outgoing {
        case .nothing: preconditionFailure("content before a header section")
        case .headOnly: return
        case .gone, .aborted: throw ClientGone()
        case .content(let remaining):
            guard !isEnded else { throw ClientGone() }
            let count = remaining.map { Int(min($0, Int64(content.byteCount))) }
            let allowed = content.extracting(first: count ?? content.byteCount)
            outgoing = .content(remaining: remaining.map { $0 - Int64(allowed.byteCount) })
            try require(sent: allowed.withUnsafeBytes { writer.write($0) })
            // Content of unknown length may be a stream of events, and each event must be sent at once.
            if remaining == nil { try require(sent: writer.flush()) }
        }
    }

    /// Discards the final response if no byte of it was sent; then another one can be sent.
    ///
    /// Small responses, and heads before their content, are collected, not sent.
    package func withdraw() -> Bool {
        switch outgoing {
        case .nothing: return !isEnded
        case .gone, .aborted: return false
        case .content, .headOnly:
            guard !isEnded, !writer.hasSent else { return false }
            writer.discard()
            outgoing = .nothing
            return true
        }
    }

    private var isHeadRequest: Bool {
        switch head {
        case .success(let head): head.method == .head
        // The web server drops content of the response to a refused HEAD.
        case .failure: false
        }
    }

    private func require(sent isSent: Bool) throws(ClientGone) {
        guard !isSent else { return }
        outgoing = .gone
        throw ClientGone()
    }
}

// MARK: The end

// The end of an exchange: END_REQUEST and a close after which the response still arrives, or an abort.
//
// Invariant: an incomplete response is never followed by END_REQUEST, so that no web server takes the response for
// complete.

extension FastCGIExchange {
    /// Closes the connection at once, without END_REQUEST.
    ///
    /// Measured with nginx 1.22: after a head, nginx closes the client's connection (HTTP/2: INTERNAL_ERROR). Before a
    /// head, the client receives nginx's 502, even while it is still sending. With `error_page 502 = @gone; location
    /// @gone { return 444; }`, nginx closes the client's connection in this case too (HTTP/2: PROTOCOL_ERROR).
    ///
    /// If the connection just ended, nginx would take a response without a length as complete. A connection error, or
    /// bytes that are not a FastCGI record, mark the response as incomplete. nginx discards everything that it reads
    /// together with such bytes, even the head, so they are sent only after nginx has read the response. Some clients
    /// send a request again if they receive no response (Chromium).
    package func abort() {
        if case .content = outgoing, !isEnded, writer.flush() {
            connection.spoil(within: Self.readingTime)
        }
        outgoing = .aborted
        connection.cut()
    }

    /// How long nginx has to read the part of the response that was sent before an abort.
    private static let readingTime = Duration.seconds(2)

    enum End: Equatable {
        /// A complete response and END_REQUEST were sent.
        case responded
        /// As `responded`, and the connection can be used for the next request.
        case kept
        /// The web server disconnected, or stopped reading, before the end.
        case gone
        case aborted
        /// The handler sent no response, or less content than announced.
        case incomplete
    }

    /// Ends the request; the caller closes the connection.
    ///
    /// The connection can be kept if the web server asked for this and has sent the whole request.
    func end(mayBeKept: Bool, lingerIdle: Duration, lingerTotal: Duration) -> End {
        isEnded = true
        let failure: End? =
            switch outgoing {
            case .nothing: .incomplete
            case .content(let remaining): remaining ?? 0 > 0 ? .incomplete : nil
            case .headOnly: nil
            case .gone: .gone
            case .aborted: .aborted
            }
        if let failure { return failure }
        // Checked before the end is sent, because later bytes may belong to the next request.
        let sentAll = isContentOver
        let isKept =
            keepsConnection && mayBeKept && sentAll && reader.isAtEnd() && !connection.isReleased
        guard writer.end(isLast: keepsConnection && !isKept) else { return .gone }
        if isKept { return .kept }
        // If the connection were closed at once, a write of the web server could fail, and nginx would send 502 instead
        // of the response it has.
        if !sentAll, !sentNothingMore { connection.linger(idle: lingerIdle, total: lingerTotal) }
        return .responded
    }
}

extension FastCGIExchange {
    /// Whether no content is expected and no byte is waiting, so that the connection can be closed at once.
    private var sentNothingMore: Bool {
        guard case .success(let head) = head,
            head.contentLength != .unknown || !head.announcesContent
        else { return false }
        return head.contentLength.count ?? 0 == 0 && connection.readableBytes == 0
    }

    /// Whether the record that ends the content has arrived.
    ///
    /// The record usually arrives with the last byte, or with the parameters if there is no content.
    private var isContentOver: Bool {
        switch incoming {
        case .ended(sawEnd: true): return true
        case .failed, .content(remaining: .some): return false
        case .ended(sawEnd: false), .content(remaining: nil):
            let nowhere = UnsafeMutableRawBufferPointer(start: nil, count: 0)
            return reader.receive(into: nowhere, waits: false).end == .proper
        }
    }
}

extension RequestHead {
    /// Whether a request with this method may have content although it states no length.
    fileprivate var announcesContent: Bool {
        ![.get, .head, .delete, .options].contains(method)
    }
}
