// The steps of the protocol core's table, each applied to an upload on disk.

import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

@Suite("The steps of an upload")
struct StepTests {
    private let scripted = ScriptedDisk()

    struct Move: Sendable, CustomTestStringConvertible {
        var phase: UploadState.Phase
        var step: UploadState.Step
        var next: UploadState.Phase
        var testDescription: String { "\(phase), \(step)" }
    }

    static let moves = UploadState.Phase.allCases.flatMap { phase in
        UploadState.Step.allCases.compactMap { step in
            UploadState.phase(after: step, in: phase).map {
                Move(phase: phase, step: step, next: $0)
            }
        }
    }

    @Test("the spool does each step of the core's table", arguments: moves)
    func step(_ move: Move) throws {
        let folder = TemporarySpool()
        let upload = try folder.open(scripted.disk).create(.sample(), requestRelease: {})
        try upload.append("hello")
        try bring(upload, to: move.phase)
        #expect(upload.state.phase == move.phase)
        try perform(move.step, on: upload)
        #expect(upload.state.phase == move.next)
        let id = upload.creation.id
        upload.unlock()
        let found = try #require(try folder.open().lock(id))
        // An attempt without a process has ended.
        #expect(found.state.phase == (move.next == .delivering ? .deferred : move.next))
    }

    private func bring(_ upload: Upload, to phase: UploadState.Phase) throws {
        let steps: [UploadState.Step] =
            switch phase {
            case .receiving: []
            case .deferred: [.postponed]
            case .delivering: [.attempt]
            case .delivered: [.attempt, .response]
            case .indeterminate: [.attempt, .silence]
            case .failed: [.postponed, .failure]
            case .held: [.postponed, .hold]
            }
        for step in steps { try perform(step, on: upload) }
    }

    private func perform(_ step: UploadState.Step, on upload: Upload) throws {
        switch step {
        case .attempt: try upload.beginAttempt()
        case .response: try upload.finish(with: .sample)
        case .postponed: try upload.postpone(reason: "later", .client(.now))
        case .silence: try upload.hold(.indeterminate, reason: "no answer")
        case .failure: try upload.hold(.failed, reason: "overtime")
        case .hold: try upload.hold(.held, reason: "by an operator")
        case .requeue: try upload.requeue(at: .now)
        case .loss:
            scripted.refuse(.sync, errno: SystemError.lost, times: 1)
            #expect(throws: SpoolError.self) { try upload.sync() }
        }
    }
}
