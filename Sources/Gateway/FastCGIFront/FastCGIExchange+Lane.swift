// The FastCGI listener's part of the lane.
//
// Invariant: an offer receives exactly one reply: a grant, or a refusal at the first read of content.

package import SpoolgateExchange
package import SpoolgatePosix

extension FastCGIExchange: ContentLane {
    package var lane: (any ContentLane)? { self }

    package var wasOffered: Bool { reader.lane != .none }

    /// Waits until content arrives, and returns whether nginx offers to write the content.
    package func isOffered() throws(ContentError) -> Bool {
        while case .content(let remaining) = incoming, reader.lane == .none, !reader.isInContent {
            incoming = after(0, readOn() ?? .none, remaining: remaining)
        }
        if case .failed(let error) = incoming { throw error }
        return reader.lane == .offered
    }

    /// Reads records until the next one with content, and returns how reading ended; nil if the alarm rang first.
    private func readOn() -> RecordReader.End? {
        let nowhere = UnsafeMutableRawBufferPointer(start: nil, count: 0)
        return reader.hasBytes
            ? reader.receive(into: nowhere, waits: false).end : wait(for: nowhere)?.end
    }

    func decline() {
        reader.noteReply(isGrant: false)
        // If the reply cannot be sent, the next read fails.
        _ = writer.send(.decline)
    }

    /// Accepts the offer, which nginx must have made.
    package func grant(
        _ file: consuming Descriptor,
        at offset: Int64,
        _ limit: LaneLimit
    ) throws(ContentError) {
        precondition(reader.lane == .offered, "a grant without an offer")
        reader.noteReply(isGrant: true)
        guard writer.send(.grant(offset: offset, limit), passing: file) else { throw fail() }
    }

    /// Raises nginx's limit; throws `ContentError` if nginx is gone.
    package func widen(_ limit: LaneLimit) throws(ContentError) {
        guard writer.send(.window(limit)) else { throw fail() }
    }

    /// Has nginx close the file; does nothing if nginx has already closed it.
    package func stop() {
        guard reader.lane == .granted else { return }
        _ = writer.send(.stop)
    }

    /// Waits for the next report; reads no further than the end of nginx's writing.
    package func receiveReport() throws(ContentError) -> LaneReport? {
        while true {
            if let report = reader.nextReport() { return try note(report) }
            guard reader.lane == .granted, laneEnd == .none else { throw fail() }
            guard let end = readOn() else { return nil }
            // nginx reports nothing while its client sends nothing, so the caller decides.
            if end == .stalled { throw .stalled }
            // Reports received before the end are returned first.
            laneEnd = end
        }
    }

    private func note(_ report: LaneReport) throws(ContentError) -> LaneReport {
        guard case .content(var remaining) = incoming, report.count >= laneCount else {
            throw fail()
        }
        if let rest = remaining {
            guard report.count - laneCount <= rest else { throw fail() }
            remaining = rest - (report.count - laneCount)
        }
        laneCount = report.count
        incoming = .content(remaining: remaining)
        // The end of all content may have arrived with the report.
        if case .ended = report, laneEnd != .broken, laneEnd == .proper || remaining == 0 {
            incoming = after(0, laneEnd, remaining: remaining)
        }
        return report
    }

    private func fail() -> ContentError {
        let error: ContentError = connection.isReleased ? .released : .truncated
        incoming = .failed(error)
        return error
    }
}

// MARK: Messages

// The messages between the gateway and nginx's module on the lane.
//
// They are records of type FCGI_DATA, 24 bytes each, in network byte order; the module's README has the table. Pure.
// Invariant: bytes that deviate from this format are not a message.

/// A message from nginx.
enum LaneMessage: Equatable {
    /// nginx can write the content, and holds it until the gateway replies.
    case offer
    case report(LaneReport)

    static let size = 24
    private static let version: UInt8 = 1

    /// Parses a record's content.
    init?(_ bytes: [UInt8]) {
        guard bytes.count == Self.size, bytes[1] == Self.version, bytes[2] == 0, bytes[3] == 0,
            Self.number(bytes[16..<24]) == 0
        else { return nil }
        let (errno, count) = (Self.number(bytes[4..<8]), Self.number(bytes[8..<16]))
        guard let count = Int64(exactly: count), let errno = Int32(exactly: errno) else {
            return nil
        }
        switch bytes[0] {
        case 1 where count == 0 && errno == 0: self = .offer
        case 2 where errno == 0: self = .report(.written(count))
        case 3: self = .report(.ended(count, errno: errno))
        default: return nil
        }
    }

    private static func number(_ bytes: ArraySlice<UInt8>) -> UInt64 {
        bytes.reduce(0) { $0 << 8 | UInt64($1) }
    }

    /// A message from the gateway.
    enum Reply: Equatable {
        /// Sent with a file's descriptor. nginx appends content to the file, whose size is `offset`, up to `limit`.
        case grant(offset: Int64, LaneLimit)
        /// nginx must send all content as usual.
        case decline
        /// nginx may write up to this higher limit.
        case window(LaneLimit)
        /// nginx must write no more.
        case stop

        var bytes: [UInt8] {
            switch self {
            case .grant(let offset, let limit): Self.bytes(1, offset: offset, limit)
            case .decline: Self.bytes(2)
            case .window(let limit): Self.bytes(3, limit)
            case .stop: Self.bytes(4)
            }
        }

        private static func bytes(
            _ kind: UInt8,
            offset: Int64 = 0,
            _ limit: LaneLimit = LaneLimit(count: 0, restFollows: false)
        ) -> [UInt8] {
            var bytes: [UInt8] = [
                kind, LaneMessage.version, limit.restFollows ? 1 : 0, 0, 0, 0, 0, 0,
            ]
            for number in [offset, limit.count] {
                withUnsafeBytes(of: number.bigEndian) { bytes.append(contentsOf: $0) }
            }
            return bytes
        }
    }
}
