// The reception of one message's content into an upload: over the connection, or as nginx writes it into the upload's
// file (the lane).
//
// Each part is stored on arrival, so that received bytes survive a crash. Invariant: on return, the gateway has the file
// back, or the process that has the file keeps the upload locked.

import SpoolgateDelivery
import SpoolgateExchange
import SpoolgatePosix
import SpoolgateSpool

enum ReceptionEnd: Sendable, Equatable {
    case ended
    /// The content ended early; the bytes received are stored.
    case interrupted(ContentError)
    /// The bytes up to the ceiling are stored, except a withheld one.
    case exceeded

    var isInterrupted: Bool { if case .interrupted = self { true } else { false } }
}

/// The state of a reception, which one thread uses; it is all that survives a wait for content.
struct Reception {
    /// A byte that is stored only after the content has ended properly; a truncated message's client sends it again.
    enum Withheld: Sendable {
        case none
        /// The byte that fills the room.
        case last
        /// The newest byte at any time.
        case newest
    }

    /// The upload's file, while nginx writes into it.
    private struct Loan {
        let lane: any ContentLane
        /// The upload's offset at the beginning.
        let start: Int64
        /// The maximum number of bytes that nginx writes.
        let expected: Int64
        /// How long nginx may take to close the file after the gateway has closed the connection.
        let patience: Duration
    }

    /// What ends a wait.
    private enum Event {
        /// Content is in the buffer.
        case content
        case report(LaneReport)
        case alarm
        case end
    }

    /// Parts of fewer bytes arrive more slowly than they are stored.
    private static let slowPart = 4096
    /// How many more bytes nginx may write: as many as it has written, within this range.
    ///
    /// This space is reserved, so a client that sends nothing blocks it for others.
    private static let windows: ClosedRange<Int64> = 64 << 10...64 << 20
    /// How long nginx may take to close the file before the gateway closes the connection.
    private static let patience = Duration.seconds(1)

    private let request: Request
    private let upload: Upload
    private let buffer: ContentBuffer
    /// Computes digests of the content; nil if none are needed.
    private let reading: DigestReading?
    private let withheld: Withheld
    /// The upload's highest offset.
    private let ceiling: Int64
    private var withheldByte: UInt8?
    /// Reports nothing if the content may be discarded, and is therefore not acknowledged.
    var progress = ReceptionProgress()
    private var loan: Loan?
    private var slowParts = 0
    /// Why nginx could not write into the file; nil if it did not fail.
    private(set) var nginxError: SystemError?

    init(
        of request: Request,
        into upload: Upload,
        by buffer: ContentBuffer,
        upTo ceiling: Int64,
        withheld: Withheld = .none,
        reading: DigestReading?
    ) {
        self.request = request
        self.upload = upload
        self.buffer = buffer
        self.ceiling = ceiling
        self.withheld = withheld
        self.reading = reading
    }

    /// Stores content until it ends; nginx may write up to `maximum` bytes itself if it offers to.
    ///
    /// `patience` is how long to wait for nginx to close the file of a closed connection; `.busy` is thrown then.
    ///
    /// - Throws: `SpoolError` if storing failed; bytes that had been stored remain.
    mutating func run(
        nginxWriting maximum: Int64 = 0,
        patience: Duration = .zero
    ) throws(SpoolError) -> ReceptionEnd {
        do throws(SpoolError) {
            if maximum > 0, let end = try lend(maximum, patience) { return end }
            while true {
                let event: Event
                do throws(ContentError) { event = try next() } catch {
                    return try interrupted(by: error)
                }
                switch event {
                case .content: guard try storePart() else { return .exceeded }
                case .report(.written(let count)): try noteWritten(count)
                case .report(.ended(let count, let errno)):
                    let isWhole = try takeBack(count, errno: errno)
                    guard isWhole else { return .interrupted(.truncated) }
                case .alarm: break
                case .end:
                    guard try storeWithheld() else { return .interrupted(.truncated) }
                    try progress.end(upload)
                    return .ended
                }
                try progress.note(upload)
                if case .content = event { try giveBackIfSlow() }
            }
        } catch {
            if upload.content.lent != nil { try endLoan() }
            throw error
        }
    }

    /// Receives content into the buffer, and leaves it there if it has at most `maximum` bytes.
    ///
    /// `maximum` must be less than the buffer's capacity. Returns nil for larger content; more of it may follow.
    mutating func hold(upTo maximum: Int) -> ReceptionEnd? {
        buffer.removeAll()
        while buffer.count <= maximum {
            let before = buffer.count
            do throws(ContentError) {
                guard try request.receive(into: buffer) else { return .ended }
            } catch {
                return .interrupted(error)
            }
            if isSlow(afterPart: buffer.count - before) { giveBackUnused() }
        }
        return nil
    }

    /// Waits for content or a report.
    private func next() throws(ContentError) -> Event {
        guard let loan else {
            buffer.removeAll()
            guard try request.receive(into: buffer) else { return .end }
            return buffer.count > 0 ? .content : .alarm
        }
        do throws(ContentError) {
            return try loan.lane.receiveReport().map { .report($0) } ?? .alarm
        } catch {
            // nginx reports only from time to time; content that has grown is not stalled.
            guard error == .stalled, upload.content.hasGrown else { throw error }
            return .report(.written(.max))
        }
    }

    private mutating func interrupted(by error: ContentError) throws(SpoolError) -> ReceptionEnd {
        // The bytes before an error count because the FastCGI listener adds them to the buffer.
        if loan == nil { _ = try storePart() } else { try endLoan() }
        return .interrupted(error)
    }

    // MARK: Over the connection

    /// Stores as many of the buffer's bytes as there is room for; returns false if some did not fit.
    private mutating func storePart() throws(SpoolError) -> Bool {
        let room = ceiling - upload.offset - (withheldByte == nil ? 0 : 1)
        let fits = Int(min(Int64(buffer.count), room))
        guard fits > 0 else { return buffer.count == 0 }
        let isWithheld =
            switch withheld {
            case .none: false
            case .last: Int64(fits) == room
            case .newest: true
            }
        if let byte = withheldByte { try store(byte) }
        withheldByte = nil
        let count = isWithheld ? fits - 1 : fits
        try buffer.withBytes { bytes throws(SpoolError) in
            if count > 0 { try store(bytes.extracting(first: count)) }
            if isWithheld {
                withheldByte = bytes.unsafeLoad(fromByteOffset: count, as: UInt8.self)
            }
        }
        return fits == buffer.count
    }

    private func store(_ bytes: RawSpan) throws(SpoolError) {
        reading?.update(bytes)
        try upload.append(bytes)
    }

    private func store(_ byte: UInt8) throws(SpoolError) {
        let bytes = [byte]
        try store(bytes.span.bytes)
    }

    /// Stores the withheld byte after the content's proper end; returns false if the web server is gone.
    private func storeWithheld() throws(SpoolError) -> Bool {
        guard let byte = withheldByte else { return true }
        guard !request.exchange.isPeerGone else { return false }
        // A crash after the last byte must not leave an offset whose client takes it for success.
        if withheld == .newest { try upload.setLength(upload.offset + 1) }
        try store(byte)
        return true
    }

    /// Stores what is in memory, which is for content that will soon be complete.
    private mutating func giveBackIfSlow() throws(SpoolError) {
        guard isSlow(afterPart: buffer.count) else { return }
        buffer.removeAll()
        try upload.store()
        giveBackUnused()
    }

    private mutating func isSlow(afterPart count: Int) -> Bool {
        slowParts = count < Self.slowPart ? slowParts + 1 : 0
        return slowParts > 1
    }

    /// Releases memory that only fast content would use again, because thousands of slow clients wait at a time.
    private func giveBackUnused() {
        buffer.releaseUnusedPages()
        Thread.releaseStack()
    }

    // MARK: As nginx writes

    /// Lets nginx write up to `maximum` bytes into the upload's file if nginx offers to do so.
    ///
    /// The next read of content declines an offer that is not accepted here. Returns the end if the web server is gone.
    private mutating func lend(
        _ maximum: Int64,
        _ patience: Duration
    ) throws(SpoolError) -> ReceptionEnd? {
        let lane: any ContentLane
        do throws(ContentError) {
            guard let offered = try request.offeredLane() else { return nil }
            lane = offered
        } catch {
            return .interrupted(error)
        }
        let loan = Loan(lane: lane, start: upload.offset, expected: maximum, patience: patience)
        let file = try upload.lend(upTo: Self.maximum(written: 0, expected: maximum))
        self.loan = loan
        do throws(ContentError) {
            try lane.grant(file, at: loan.start, limit(of: loan))
        } catch {
            return try interrupted(by: error)
        }
        request.noteLaneTaken()
        return nil
    }

    /// The total number of bytes that nginx may write after it has written `written`.
    private static func maximum(written: Int64, expected: Int64) -> Int64 {
        min(expected, written + min(max(written, windows.lowerBound), windows.upperBound))
    }

    private func limit(of loan: Loan) -> LaneLimit {
        let count = upload.content.lent ?? 0
        return LaneLimit(count: count, restFollows: count == loan.expected)
    }

    /// Notes the total number of bytes that nginx has written, and raises its limit.
    private func noteWritten(_ count: Int64) throws(SpoolError) {
        guard let loan else { return }
        try upload.content.noteAdded(count)
        let written = upload.offset - loan.start
        request.noteWritten(written)
        if count == written { try widen(loan, written: written) }
    }

    private func widen(_ loan: Loan, written: Int64) throws(SpoolError) {
        guard let lent = upload.content.lent else { return }
        let left = lent - written
        let maximum = Self.maximum(written: written, expected: loan.expected)
        // Waits until as much is written as is left: a client that sends single bytes must not obtain a second loan.
        guard maximum > lent, left <= min(written, (maximum - written) / 2) else { return }
        var limit = LaneLimit(count: lent, restFollows: true)
        do throws(SpoolError) {
            try upload.content.lendMore(upTo: maximum - lent)
            limit = self.limit(of: loan)
        } catch {
            guard error.isNoRoom else { throw error }
            // Space may become free before the limit is reached. At the limit, the content may be complete; if more
            // follows, it is refused on arrival.
            guard left == 0 else { return }
        }
        // If widening fails, reading the next report fails too.
        try? loan.lane.widen(limit)
    }

    /// nginx has closed the file after `count` bytes; returns whether the file has all of them.
    private mutating func takeBack(_ count: Int64, errno: Int32) throws(SpoolError) -> Bool {
        guard let loan else { return true }
        let error = SystemError(call: "writev", subject: "by nginx", errno: errno)
        if count == 0, error.mayBeForbidden { nginxError = error }
        try takeBack(count, errno)
        return upload.offset == loan.start + count
    }

    /// Ends the loan before nginx does.
    private mutating func endLoan() throws(SpoolError) {
        loan?.lane.stop()
        try takeBack(nil, 0)
    }

    private mutating func takeBack(_ count: Int64?, _ errno: Int32) throws(SpoolError) {
        guard let loan else { return }
        defer {
            // Also counts bytes that nginx had written but not reported.
            request.noteWritten(upload.offset - loan.start)
            if upload.content.lent == nil { self.loan = nil }
        }
        if try upload.takeBack(count, errno: errno, until: .after(Self.patience)) { return }
        // nginx closes the file with the connection.
        request.exchange.abort()
        guard try upload.takeBack(count, errno: errno, until: .after(loan.patience)) else {
            throw .busy(upload.creation.id)
        }
    }
}
