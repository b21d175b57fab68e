// Threads for work that other threads must not wait for.

import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@Suite("Helper threads")
struct HelperThreadsTests {
    private static let deadline = Duration.seconds(120)

    @Test("every job runs once, however many are queued", arguments: [1, 3])
    func once(maximum: Int) throws {
        let helpers = HelperThreads(name: "helper", maximum: maximum)
        let runs = Monitor([Int](repeating: 0, count: 2_000))
        for number in 0..<2_000 { helpers.run { runs.update { $0[number] += 1 } } }
        let isEnded: Bool? = runs.wait(until: .after(Self.deadline)) {
            $0.allSatisfy { $0 > 0 } ? true : nil
        }
        #expect(isEnded == true)
        #expect(runs.update { $0.allSatisfy { $0 == 1 } })
    }

    @Test("a blocked job delays no other while there are threads")
    func blocked() throws {
        let helpers = HelperThreads(name: "helper", maximum: 3)
        let state = Monitor((isReleased: false, blocked: 0, done: 0))
        func waits(_ condition: (Int, Int) -> Bool) -> Bool {
            state.wait(until: .after(Self.deadline)) {
                condition($0.blocked, $0.done) ? true : nil
            } ?? false
        }
        for _ in 0..<2 {
            helpers.run {
                state.update { $0.blocked += 1 }
                let _: Bool? = state.wait(until: .after(Self.deadline)) {
                    $0.isReleased ? true : nil
                }
                state.update { $0.done += 1 }
            }
        }
        #expect(waits { blocked, _ in blocked == 2 })
        for _ in 0..<100 { helpers.run { state.update { $0.done += 1 } } }
        #expect(waits { _, done in done == 100 })
        state.update { $0.isReleased = true }
        #expect(waits { _, done in done == 102 })
    }
}
