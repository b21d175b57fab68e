// The progress calls of a sink while an attempt waits.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateUpstream

/// Counts progress calls, and can block in them.
private final class PatientSink: ResponseSink {
    let whileWaiting: (Int) -> Void
    /// Before the header section.
    private(set) var calls = 0
    private(set) var hasHead = false

    init(_ whileWaiting: @escaping (Int) -> Void = { _ in }) { self.whileWaiting = whileWaiting }

    func onProgress() {
        guard !hasHead else { return }
        calls += 1
        whileWaiting(calls)
    }

    func receive(interim head: ResponseHead) {}
    func receive(head: ResponseHead, contentLength: Int64?) { hasHead = true }
    func receive(content: RawSpan) {}
}

@Suite("During an attempt")
struct WaitingTests {
    /// Responds once `isDue`.
    private func origin(_ isDue: Monitor<Bool>) throws -> LoopbackOrigin {
        try LoopbackOrigin { connection in
            guard try connection.receiveRequest() != nil else { return }
            let wasDue = isDue.wait(until: .after(.seconds(300))) { $0 ? true : nil }
            if wasDue == true { try connection.response("201 Created") }
        }
    }

    @Test("the sink is called repeatedly while an upstream works", arguments: [10, 300_000])
    func heard(length: Int64) throws {
        let isDue = Monitor(false)
        let origin = try origin(isDue)
        var idleCalls = 0
        let sink = PatientSink { _ in
            if !origin.requests.isEmpty { idleCalls += 1 }
            if idleCalls == 3 { isDue.update { $0 = true } }
        }
        let outcome = try upstream(origin.base).attempt(
            "POST",
            content: pattern(length),
            sink: sink
        )
        #expect(outcome == .responded, "\(outcome)")
        #expect(idleCalls >= 3)
    }

    @Test("the time that the sink takes is not counted against the upstream")
    func ownTime() throws {
        let isDue = Monitor(false)
        let origin = try origin(isDue)
        var idleCalls = 0
        let sink = PatientSink { _ in
            if !origin.requests.isEmpty { idleCalls += 1 }
            // By the second call, the connection's own activity has been reported.
            guard idleCalls == 2 else { return }
            usleep(4_500_000)
            isDue.update { $0 = true }
        }
        let outcome = try upstream(origin.base, response: .seconds(4)).attempt(
            "POST",
            content: pattern(300_000),
            sink: sink
        )
        #expect(outcome == .responded, "\(outcome)")
        #expect(idleCalls >= 2)
    }

    @Test("the sink is called between the parts of content that is copied to a directory")
    func copying() throws {
        let directory = try ScratchDirectory()
        let sink = PatientSink()
        let outcome = try upstream("directory:\(directory.path)").attempt(
            "PUT",
            content: pattern(1_000_000),
            sink: sink
        )
        #expect(outcome == .responded)
        #expect(sink.calls >= 4)
    }
}
