// One FastCGI request as an Exchange: content in by fragments, heads and content out.
//
// It does not decide what is answered. Invariants: it never blocks while it holds bytes its caller
// has not got; content ends properly only where the web server said so and every byte is there.

import CFastCGI
package import Exchange
import HTTPTypes
package import Posix
package import UploadProtocol

/// One request on one connection.
package final class FastCGIExchange: Exchange {
    /// The head, read from the parameters; a refusal where they make none.
    package let head: Result<RequestHead, Refusal>
    /// The operator's words among the parameters.
    package let context: ExchangeContext
    /// Reaches this request's connection and no other, however late it is called.
    package let interrupt: @Sendable () -> Void

    let connection: Connection
    /// nil when the exchange is over.
    var request: UnsafeMutablePointer<FCGX_Request>?
    private let stallTimeout: Duration
    var incoming: Incoming
    var outgoing = Outgoing.nothing

    /// Where receiving stands.
    enum Incoming {
        /// Content is coming; with the bytes still to come where the length is known.
        case content(remaining: Int64?, isLimited: Bool)
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
        _ request: UnsafeMutablePointer<FCGX_Request>,
        _ parameters: RequestParameters,
        connection: Connection,
        stallTimeout: Duration,
        interrupt: @escaping @Sendable () -> Void
    ) {
        self.request = request
        self.connection = connection
        self.stallTimeout = stallTimeout
        self.interrupt = interrupt
        (head, context) = parameters.read()
        incoming =
            switch (try? head.get())?.contentLength {  // A refused head has no length.
            case .known(0): .ended(sawEnd: false)
            case .known(let length): .content(remaining: length, isLimited: false)
            case .unknown, nil: .content(remaining: nil, isLimited: false)
            }
    }

    /// True as soon as the web server has closed its side.
    ///
    /// It sends everything and then waits, so a closed side means that it has given the request up,
    /// even where all content had arrived (nginx after a 504 or a client that left).
    package var isPeerGone: Bool {
        switch outgoing {
        case .gone, .aborted: true
        case .nothing, .content, .headOnly: request == nil || connection.isHungUp
        }
    }
}

// MARK: Receiving

extension FastCGIExchange {
    /// Bytes between the content of two records, at most: padding and the next record's header.
    private static let mostBetween = 255 + 8

    /// Below this many bytes in the socket another read might find nothing but what is between two
    /// records, and then block.
    private static let surelyContent = mostBetween + 1

    /// Bytes of a buffer that a wait may keep: thousands of clients may stall at a time.
    private static let keptBytes = 32 << 10

    /// How long content may be late before a wait counts as one.
    ///
    /// A web server that is a little slower than this side empties the socket hundreds of times in a
    /// gibibyte, and every page that is given back then costs a fault.
    private static let breath = Duration.milliseconds(5)

    /// How much libfcgi reads at a time, at most.
    private static let readSize = 8192

    /// Adds content to `buffer`, which must have room: waits for the first bytes only.
    ///
    /// - Returns: false at the proper end: CONTENT_LENGTH bytes, or the web server's end record where
    ///   the length is not known.
    /// - Throws: `ContentError`, after all bytes that came before it were handed over.
    package func receive(into buffer: ContentBuffer) throws(ContentError) -> Bool {
        releaseIfStalled(buffer)
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
        case .ended, .content: return false
        }
    }

    /// Gives back what a burst of content took, where none follows soon: this may be a long wait.
    private func releaseIfStalled(_ buffer: ContentBuffer) {
        guard buffer.count == 0, buffer.touched > Self.keptBytes,
            !connection.isReadable(within: Self.breath)
        else { return }
        buffer.releasePages()
        Thread.releaseStack()
    }

    private func take(into free: UnsafeMutableRawBufferPointer) -> Int {
        var count = 0
        var readable = 0
        var fragment = 0
        while count < free.count, case .content(let remaining, let isLimited) = incoming {
            guard let stream = request?.pointee.in else {
                incoming = .failed(.released)
                break
            }
            let available = stream.pointee.stop - stream.pointee.rdNext
            if available > 0 {
                fragment = available
                let room = min(available, free.count - count)
                let step = remaining.map { Int(min(Int64(room), $0)) } ?? room
                copy(step, of: stream, to: free, at: count)
                count += step
                guard let remaining else { continue }
                incoming = after(remaining - Int64(step), stream, isLimited: isLimited)
                continue
            }
            if count > 0, readable < Self.surelyContent {
                readable = connection.readableBytes
                if readable < Self.surelyContent { break }
            }
            // With bytes in hand only what is surely there is read on, so nothing waits then.
            if !isLimited, count == 0 {
                connection.setReceiveTimeout(stallTimeout)
                incoming = .content(remaining: remaining, isLimited: true)
            }
            let before = stream.pointee.rdNext
            // A released one hands over the bytes in hand first and leaves those in the socket: read
            // on, a fast sender would never be let go.
            if count == 0, !connection.beginWaiting() {
                incoming = .failed(.released)
                break
            }
            defer { if count == 0 { connection.stopWaiting() } }
            fill(stream, remaining: remaining)
            // A little further on, by no more than what can be between two records: libfcgi had it
            // already. Unless it started again at the front of its buffer, so near to the front that
            // this looks the same.
            if let before, let after = stream.pointee.rdNext, fragment > Self.mostBetween,
                after > before, after - before <= Self.mostBetween
            {
                continue
            }
            readable -= Self.readSize
        }
        return count
    }

    private func copy(
        _ count: Int,
        of stream: UnsafeMutablePointer<FCGX_Stream>,
        to free: UnsafeMutableRawBufferPointer,
        at offset: Int
    ) {
        guard let source = stream.pointee.rdNext else { return }
        let room = UnsafeMutableRawBufferPointer(rebasing: free[offset...])
        room.copyMemory(from: UnsafeRawBufferPointer(start: source, count: count))
        stream.pointee.rdNext = source + count
    }

    /// With a known length the end is where the last byte is: some web servers send the record that
    /// ends the content late or never.
    ///
    /// Bytes beyond it make the message malformed.
    private func after(
        _ remaining: Int64,
        _ stream: UnsafeMutablePointer<FCGX_Stream>,
        isLimited: Bool
    ) -> Incoming {
        guard remaining == 0 else { return .content(remaining: remaining, isLimited: isLimited) }
        return stream.pointee.stop == stream.pointee.rdNext
            ? .ended(sawEnd: false) : .failed(.truncated)
    }

    /// Waits for the next fragment of content, or finds out why there is none.
    private func fill(_ stream: UnsafeMutablePointer<FCGX_Stream>, remaining: Int64?) {
        let byte = FCGX_GetChar(stream)
        guard byte < 0 else {
            FCGX_UnGetChar(byte, stream)
            return
        }
        switch FCGX_GetError(stream) {
        case 0:
            // The end record; where a length is known it came too early.
            incoming = remaining == nil ? .ended(sawEnd: true) : .failed(.truncated)
        case EAGAIN: incoming = .failed(.stalled)
        default: incoming = .failed(connection.isReleased ? .released : .truncated)
        }
    }
}

// MARK: Sending

extension FastCGIExchange {
    /// Sends an interim head at once; nothing where the web server does not forward its status, or
    /// after the final head.
    package func send(interim head: ResponseHead) {
        guard context.interimStatuses.contains(head.status.code), outgoing == .nothing,
            let stream = request?.pointee.out
        else { return }
        let bytes = ResponseBytes.interim(head)
        guard put(bytes.span.bytes, to: stream), FCGX_FFlush(stream) == 0 else {
            outgoing = .gone
            return
        }
    }

    /// Sends the final head, once; with exactly this `Content-Length`.
    ///
    /// - Throws: `ClientGone` when the web server left or does not read, and for a second head.
    package func send(head: ResponseHead, contentLength: Int64?) throws(ClientGone) {
        guard outgoing == .nothing, let stream = request?.pointee.out else { throw ClientGone() }
        let hasContent = !isHeadRequest && head.status.code != 204 && head.status.code != 304
        let bytes = ResponseBytes.final(
            head,
            contentLength: contentLength,
            hasContent: hasContent
        )
        outgoing = hasContent ? .content(remaining: contentLength) : .headOnly
        try putOrGone(bytes.span.bytes, to: stream)
    }

    /// Sends content; nothing for HEAD, 204 and 304, and nothing beyond the announced length.
    ///
    /// - Throws: `ClientGone` when the web server left or does not read.
    package func send(content: RawSpan) throws(ClientGone) {
        switch outgoing {
        case .nothing: preconditionFailure("content before a head")
        case .headOnly: return
        case .gone, .aborted: throw ClientGone()
        case .content(let remaining):
            guard let stream = request?.pointee.out else { throw ClientGone() }
            let count = remaining.map { Int(min($0, Int64(content.byteCount))) }
            let allowed = content.extracting(first: count ?? content.byteCount)
            outgoing = .content(remaining: remaining.map { $0 - Int64(allowed.byteCount) })
            try putOrGone(allowed, to: stream)
            // Content of unknown length may be a stream of events: each goes on when it comes.
            if remaining == nil, FCGX_FFlush(stream) != 0 {
                outgoing = .gone
                throw ClientGone()
            }
        }
    }

    private var isHeadRequest: Bool {
        switch head {
        case .success(let head): head.method == .head
        // Content after the answer to a refused HEAD is dropped by the web server.
        case .failure: false
        }
    }

    private func putOrGone(
        _ bytes: RawSpan,
        to stream: UnsafeMutablePointer<FCGX_Stream>
    ) throws(ClientGone) {
        guard put(bytes, to: stream) else {
            outgoing = .gone
            throw ClientGone()
        }
    }

    private func put(_ bytes: RawSpan, to stream: UnsafeMutablePointer<FCGX_Stream>) -> Bool {
        bytes.withUnsafeBytes { all in
            var rest = all[...]
            while !rest.isEmpty {
                let step = min(rest.count, 1 << 30)
                let part = UnsafeRawBufferPointer(rebasing: rest.prefix(step))
                let text = part.bindMemory(to: CChar.self)
                guard FCGX_PutStr(text.baseAddress, Int32(step), stream) == Int32(step) else {
                    return false
                }
                rest = rest.dropFirst(step)
            }
            return true
        }
    }
}

/// libfcgi passes on the system's error number; EAGAIN is the limit on waiting.
private let EAGAIN: Int32 = 11
