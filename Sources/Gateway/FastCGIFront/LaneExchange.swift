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
        reader.noteAnswer(isGrant: false)
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
        reader.noteAnswer(isGrant: true)
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
