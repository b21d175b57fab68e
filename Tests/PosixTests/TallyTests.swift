// Counters that many threads increment.

import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@Suite("Counters")
struct TallyTests {
    @Test("a duration counts in the first range that it fits into, its bound included")
    func ranges() {
        let histogram = Histogram([0.001, 0.01, 1])
        for nanoseconds in [0, 1_000_000, 1_000_001, 999_999_999, 1_000_000_001] {
            histogram.add(nanoseconds: nanoseconds)
        }
        #expect(histogram.cumulated == [2, 3, 4, 5])
        #expect(abs(histogram.seconds - 2.002_000_001) < 1e-9)
    }

    @Test("concurrent additions by threads all count, under each key", .timeLimit(.minutes(5)))
    func threads() throws {
        let counters = Counters<String>()
        let left = Monitor(8)
        for thread in 0..<8 {
            try Thread.start(name: "tally") {
                for _ in 0..<1_000 { counters["\(thread % 2)"].add() }
                left.update { $0 -= 1 }
            }
        }
        let isEnded: Bool? = left.wait(until: .after(.seconds(120))) { $0 == 0 ? true : nil }
        #expect(isEnded == true)
        #expect(counters["0"].count == 4_000)
        #expect(counters["1"].count == 4_000)
    }
}
