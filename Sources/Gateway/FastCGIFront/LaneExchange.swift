// Content that nginx writes into a file by itself: the front's part.
//
// Invariant: an offer is answered once, by a grant or by the first read of content.

package import SpoolgateExchange
package import SpoolgatePosix

extension FastCGIExchange: ContentLane {
    /// The lane, which nginx may offer.
    package var lane: (any ContentLane)? { self }

    /// Whether nginx has offered it, as far as was read.
    package var wasOffered: Bool { reader.lane != .none }

    /// Waits for the beginning of the content; whether nginx offers to write it into a file.
    package func isOffered() throws(ContentError) -> Bool {
        while case .content(let remaining) = incoming, reader.lane == .none, !reader.isInContent {
            incoming = after(0, readOn() ?? .none, remaining: remaining)
        }
        if case .failed(let error) = incoming { throw error }
        return reader.lane == .offered
    }

    /// Reads what comes before more content; nil if the alarm rang first.
    private func readOn() -> RecordReader.End? {
        let nowhere = UnsafeMutableRawBufferPointer(start: nil, count: 0)
        return reader.hasBytes
            ? reader.receive(into: nowhere, waits: false).end : wait(for: nowhere)?.end
    }

    /// Declines the offer: what nginx holds comes as ever.
    func decline() {
        reader.noteAnswer(isGrant: false)
        // Where it cannot be sent, the next read tells.
        _ = writer.send(.decline)
    }

    /// Takes the offer up; only where there is one.
    package func grant(
        _ file: consuming Descriptor,
        at offset: Int64,
        _ limit: LaneLimit
    ) throws(ContentError) {
        precondition(reader.lane == .offered, "a grant without an offer")
        reader.noteAnswer(isGrant: true)
        guard writer.send(.grant(offset: offset, limit), passing: file) else { throw fail() }
    }

    /// Lets nginx write more.
    /// - Throws: where it is gone.
    package func widen(_ limit: LaneLimit) throws(ContentError) {
        guard writer.send(.window(limit)) else { throw fail() }
    }

    /// Has nginx close the file; harmless where it has done so.
    package func stop() {
        guard reader.lane == .granted else { return }
        _ = writer.send(.stop)
    }

    /// Waits for the next report, as `ContentLane` says.
    ///
    /// Reads on no further than the end of what nginx writes.
    package func receiveReport() throws(ContentError) -> LaneReport? {
        while true {
            if let report = reader.nextReport() { return try note(report) }
            guard reader.lane == .granted, laneEnd == .none else { throw fail() }
            guard let end = readOn() else { return nil }
            // It says nothing while its client sends nothing: for the caller to judge.
            if end == .stalled { throw .stalled }
            // What came before it counts first.
            laneEnd = end
        }
    }

    /// Counts what nginx has written as content that came.
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
        // The end of all content may have come with it.
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
