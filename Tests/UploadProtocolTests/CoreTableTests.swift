// The protocol core's tables in ARCHITECTURE.md and docs/STATES.md.
//
// The part between a page's two marks is generated here from the core's decisions; if it differs, the failure prints
// the correct part.

import Foundation
import HTTPTypes
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@Suite("The tables of the core")
struct CoreTableTests {
    private static let root = URL(filePath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent()
    private static let begin = "<!-- made from UploadState: begin -->\n"
    private static let end = "<!-- made from UploadState: end -->"

    @Test("ARCHITECTURE.md shows the table of the core, docs/STATES.md its diagram")
    func pages() throws {
        for (page, made) in [("ARCHITECTURE.md", Self.table), ("docs/STATES.md", Self.diagram)] {
            let url = Self.root.appending(path: page)
            let text = try String(contentsOf: url, encoding: .utf8)
            let start = try #require(text.range(of: Self.begin))
            let end = try #require(text.range(of: Self.end))
            #expect(text[start.upperBound..<end.lowerBound] == made)
        }
    }

    @Test("every phase is reached, and each transition leads to a phase")
    func reachable() {
        var reached: Set<UploadState.Phase> = [.receiving]
        for _ in UploadState.Phase.allCases {
            for phase in reached {
                reached.formUnion(
                    UploadState.Step.allCases.compactMap {
                        UploadState.phase(after: $0, in: phase)
                    }
                )
            }
        }
        #expect(reached == Set(UploadState.Phase.allCases))
    }

    @Test(
        "a request that waited too long learns no more than one under way",
        arguments: Dialect.rows
    )
    func inUse(dialect: Dialect) {
        let decision = UploadState.inUse.decideRetrieval(dialect)
        #expect(
            decision
                == (dialect.takesOffsetForSuccess ? .refuse(.finalResponsePending) : .abort)
        )
        #expect(UploadState.inUse.row(dialect).cancellation == .abort)
    }

    @Test(
        "an offset retrieval that attempted a delivery reports no success before the next one",
        arguments: Dialect.rows,
        UploadState.Phase.allCases
    )
    func tried(dialect: Dialect, phase: UploadState.Phase) {
        for status in [nil, 201, 422] {
            let state = UploadState(offset: 5, length: 5, phase: phase, finalStatus: status)
            switch state.decideRetrieval(dialect, hasTried: true) {
            case .report(let completeness):
                #expect(phase == .delivered && completeness == .incomplete)
            case .refuse(let refusal): #expect([410, 423].contains(refusal.status.code))
            case .abort: #expect(phase == .delivering)
            case .deliverFirst: Issue.record("a second attempt")
            }
        }
    }

    // MARK: The generated part

    private static var states: [(name: String, state: UploadState)] {
        UploadState.Phase.allCases.flatMap { phase in
            var lines = [(phase.rawValue, UploadState(offset: 5, length: 5, phase: phase))]
            if [.deferred, .delivering].contains(phase) {
                var state = lines[0].1
                state.isAccepted = true
                lines.append(("\(phase.rawValue), after 202", state))
            }
            if [.delivered, .failed].contains(phase) {
                var state = lines[0].1
                state.finalStatus = 422
                lines.append(("\(phase.rawValue), by 4xx or 5xx", state))
                state.isAccepted = true
                if phase == .failed { lines.append(("failed, after 202", state)) }
            }
            return lines
        }
    }

    private static var table: String {
        var text = "| state | append, more follows | append, complete | HEAD, GET "
        text += "| the same, versions 5 and 6 | DELETE |\n|---|---|---|---|---|---|\n"
        for (name, state) in states {
            let row = state.row(.newest)
            let cells = [
                name, words(row.more), words(row.completing), words(row.retrieval),
                words(row.eagerRetrieval), words(row.cancellation),
            ]
            text += "| \(cells.joined(separator: " | ")) |\n"
        }
        return text
    }

    private static var diagram: String {
        var text = "```mermaid\nstateDiagram-v2\n    [*] --> receiving : creation\n"
        for phase in UploadState.Phase.allCases {
            for step in UploadState.Step.allCases {
                guard let next = UploadState.phase(after: step, in: phase) else { continue }
                text += "    \(phase.rawValue) --> \(next.rawValue) : \(step.rawValue)\n"
            }
            let state = UploadState(offset: 5, length: 5, phase: phase)
            let row = state.row(.newest)
            if row.cancellation == .remove { text += "    \(phase.rawValue) --> [*] : DELETE\n" }
        }
        return text + "```\n"
    }

    private static func words(_ response: UploadState.AppendReply) -> String {
        switch response {
        case .goOn: "offset"
        case .deliver: "deliver"
        case .accepted: "202 again"
        case .replay(let refusal): "stored response, else \(words(refusal))"
        case .refuse(let refusal): words(refusal)
        case .abort: "close"
        }
    }

    private static func words(_ decision: UploadState.RetrievalDecision) -> String {
        switch decision {
        case .report(let completeness): "offset, \(words(completeness))"
        case .deliverFirst: "deliver first"
        case .refuse(let refusal): words(refusal)
        case .abort: "close"
        }
    }

    private static func words(_ decision: UploadState.CancellationDecision) -> String {
        switch decision {
        case .remove: "remove"
        case .refuse(let refusal): words(refusal)
        case .abort: "close"
        }
    }

    private static func words(_ refusal: Refusal) -> String {
        "\(refusal.status.code) \(refusal.title), \(words(refusal.completeness))"
    }

    private static func words(_ completeness: Completeness) -> String {
        completeness == .complete ? "?1" : "?0"
    }
}
