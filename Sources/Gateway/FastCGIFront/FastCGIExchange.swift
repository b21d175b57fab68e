// One FastCGI request as an Exchange: content in by fragments, heads and content out.
//
// It does not decide what is answered. Invariants: it never blocks while it holds bytes its caller
// has not got; content ends properly only where the web server said so and every byte is there.

import HTTPTypes
package import SpoolgateExchange
package import SpoolgatePosix
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// One request on one connection.
package final class FastCGIExchange: Exchange {
    /// The head, read from the parameters; a refusal where they make none.
    package let head: Result<RequestHead, Refusal>
    /// The operator's words among the parameters.
    package let context: ExchangeContext
    /// Reaches this request's connection and no other, however late it is called.
    package let interrupt: @Sendable () -> Void

    let connection: Connection
    var reader: RecordReader
    var writer: RecordWriter
    /// Whether the web server wants to send another request on the connection.
    let keepsConnection: Bool
    private let stallTimeout: Duration
    /// Whether the connection's limit on receiving is the one for content.
    private var isLimited = false
    /// What ends a wait for content early; nil: only content does.
    private var alarm: Alarm?
    /// Whether the exchange is over: nothing of it reaches the connection any more.
    var isOver = false
    var incoming: Incoming
    var outgoing = Outgoing.nothing
    /// Bytes of content that the web server has written by itself, as far as it has told.
    var laneCount: Int64 = 0
    /// How its records ended meanwhile.
    var laneEnd = RecordReader.End.none

    /// Where receiving stands.
    enum Incoming {
        /// Content is coming; with the bytes still to come where the length is known.
        case content(remaining: Int64?)
        /// The proper end was reached; `sawEnd`: also the record that says so.
        case ended(sawEnd: Bool)
        case failed(ContentError)
    }

    /// Where sending stands.
    enum Outgoing: Equatable {
        case nothing
        /// The head is sent; content may follow, `remaining` bytes where the length was given.
        case content(remaining: Int64?)
        /// The head is sent and the response has no content by its nature.
        case headOnly
        case gone
        case aborted
    }

    init(
        _ head: Result<RequestHead, Refusal>,
        _ context: ExchangeContext,
        of beginning: RequestBeginning,
        reader: RecordReader,
        connection: Connection,
        stallTimeout: Duration,
        interrupt: @escaping @Sendable () -> Void
    ) {
        self.connection = connection
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

    /// True as soon as the web server has closed its side.
    ///
    /// It sends everything and then waits, so a closed side means that it has given the request up,
    /// even where all content had arrived (nginx after a 504 or a client that left).
    package var isPeerGone: Bool {
        switch outgoing {
        case .gone, .aborted: true
        case .nothing, .content, .headOnly: isOver || connection.isHungUp
        }
    }
}

// MARK: Receiving

extension FastCGIExchange {
    /// Bytes of a buffer that a wait may keep: thousands of clients may stall at a time.
    private static let keptBytes = 32 << 10

    /// How long content may be late before a wait counts as one.
    ///
    /// A web server that is a little slower than this side empties the socket hundreds of times in a
    /// gibibyte, and with many clients on few processors each waits for its turn longer than for the network;
    /// every page that is given back then costs a fault, and all processors hear of it.
    private static let breath = Duration.milliseconds(100)

    /// Adds content to `buffer`, which must have room: waits for the first bytes only.
    ///
    /// - Returns: false at the proper end: CONTENT_LENGTH bytes, or the web server's end record where
    ///   the length is not known.
    /// - Throws: `ContentError`, after all bytes that came before it were handed over.
    package func receive(into buffer: ContentBuffer) throws(ContentError) -> Bool {
        if case .content = incoming { releaseIfStalled(buffer) }
        var added = 0
        buffer.fill { free in
            precondition(!free.isEmpty, "receiving into a full buffer")
            added = take(into: free)
            return added
        }
        // Bytes received before an error are good: they are told first, the error next time.
        if added > 0 { return true }
        switch incoming {
        case .failed(let error): throw error
        case .ended: return false
        // The alarm rang.
        case .content: return true
        }
    }

    /// Has `alarm` end waits for content early; nil: nothing does.
    package func setAlarm(_ alarm: Alarm?) { self.alarm = alarm }

    /// Gives back what a burst of content took, where none follows soon: this may be a long wait.
    private func releaseIfStalled(_ buffer: ContentBuffer) {
        guard buffer.count == 0, buffer.touched > Self.keptBytes, !reader.hasBytes,
            !connection.isReadable(within: Self.breath)
        else { return }
        buffer.releasePages()
        Thread.releaseStack()
    }

    private func take(into free: UnsafeMutableRawBufferPointer) -> Int {
        guard case .content(let remaining) = incoming else { return 0 }
        guard !isOver else {
            incoming = .failed(.released)
            return 0
        }
        let most = remaining.map { Int(min($0, Int64(free.count))) } ?? free.count
        let room = UnsafeMutableRawBufferPointer(rebasing: free.prefix(most))
        var (count, end) = (0, RecordReader.End.none)
        // What is at hand is handed over in any case; what is in the socket is left there by a released one:
        // read on, a fast sender would never be let go.
        if reader.hasBytes { (count, end) = reader.receive(into: room, waits: false) }
        while count == 0, end == .none {
            // Whoever reads content wants it here.
            if reader.lane == .offered { decline() }
            guard let read = wait(for: room) else { break }
            (count, end) = read
        }
        incoming = after(count, end, remaining: remaining)
        return count
    }

    /// Reads on until something comes; of the content only what `room` takes.
    /// - Returns: nil if the alarm rang first.
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
                // A part of a record may be all that came.
                if read.count > 0 || read.end != .none || reader.hasNews { return read }
            }
        }
    }

    private func limitReceiving() {
        guard !isLimited else { return }
        isLimited = true
        // The client may be slow, and reading its head took more of the stack than this wait does.
        if !connection.isReadable(within: Self.breath) { Thread.releaseStack() }
        connection.setReceiveTimeout(stallTimeout)
    }

    /// Where receiving stands after so many bytes more.
    ///
    /// With a known length the end is where the last byte is: some web servers send the record that
    /// ends the content late or never. Bytes beyond it make the message malformed.
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
    /// Sends an interim head at once; nothing where the web server does not forward its status, or
    /// after the final head.
    /// - Returns: whether it was sent.
    @discardableResult
    package func send(interim head: ResponseHead) -> Bool {
        guard context.interimStatuses.contains(head.status.code), outgoing == .nothing, !isOver
        else { return false }
        let bytes = ResponseBytes.interim(head)
        let isSent = bytes.withBytes { writer.write(UnsafeRawBufferPointer($0)) } && writer.flush()
        if !isSent { outgoing = .gone }
        return isSent
    }

    /// Sends the final head, once; with exactly this `Content-Length`.
    ///
    /// - Throws: `ClientGone` when the web server left or does not read, and for a second head.
    package func send(head: ResponseHead, contentLength: Int64?) throws(ClientGone) {
        guard outgoing == .nothing, !isOver else { throw ClientGone() }
        let hasContent = !isHeadRequest && head.status.code != 204 && head.status.code != 304
        let bytes = ResponseBytes.final(
            head,
            contentLength: contentLength,
            hasContent: hasContent
        )
        outgoing = hasContent ? .content(remaining: contentLength) : .headOnly
        try sent(bytes.withBytes { writer.write(UnsafeRawBufferPointer($0)) })
    }

    /// Sends content; nothing for HEAD, 204 and 304, and nothing beyond the announced length.
    ///
    /// - Throws: `ClientGone` when the web server left or does not read.
    package func send(content: RawSpan) throws(ClientGone) {
        switch outgoing {
        case .nothing: preconditionFailure("content before a header section")
        case .headOnly: return
        case .gone, .aborted: throw ClientGone()
        case .content(let remaining):
            guard !isOver else { throw ClientGone() }
            let count = remaining.map { Int(min($0, Int64(content.byteCount))) }
            let allowed = content.extracting(first: count ?? content.byteCount)
            outgoing = .content(remaining: remaining.map { $0 - Int64(allowed.byteCount) })
            try sent(allowed.withUnsafeBytes { writer.write($0) })
            // Content of unknown length may be a stream of events: each goes on when it comes.
            if remaining == nil { try sent(writer.flush()) }
        }
    }

    private var isHeadRequest: Bool {
        switch head {
        case .success(let head): head.method == .head
        // Content after the answer to a refused HEAD is dropped by the web server.
        case .failure: false
        }
    }

    private func sent(_ isSent: Bool) throws(ClientGone) {
        guard !isSent else { return }
        outgoing = .gone
        throw ClientGone()
    }
}
