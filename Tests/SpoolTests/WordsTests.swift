// The words that `list` prints for states.

import SpoolgatePosix
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

@Suite("Words for states")
struct WordsTests {
    @Test("every listed state has a word that a filter accepts, and there is no other")
    func all() {
        var seen: Set<String> = []
        for queue in Queue.allCases {
            for cause in HoldCause.allCases {
                for status in [nil, 201, 413] {
                    for isInUse in [false, true] {
                        let summary = UploadSummary(
                            id: .random(),
                            queue: queue,
                            sequence: 1,
                            offset: 0,
                            lastActivity: WallTime(seconds: 0),
                            diskUsage: 0,
                            attempts: 0,
                            holdCause: queue == .hold ? cause : nil,
                            status: status,
                            isInUse: isInUse
                        )
                        seen.insert(summary.stateWord)
                    }
                }
            }
        }
        #expect(seen == Set(UploadSummary.stateWords))
        #expect(seen.count == UploadSummary.stateWords.count)
    }
}
