// The pool's arithmetic, without threads.

import Testing

@testable import FastCGIFront

@Suite struct ThreadPoolTests {
    @Test(
        "a busy time is over once half of its threads are gone, and is told once for each halving"
    )
    func busyTime() {
        var pool = ThreadPool(minimumSpare: 4, maximum: 1000, reserve: 0, turningAway: 1)
        func isOver() -> Bool { pool.busyTimeIsOver() }
        for _ in 0..<16 { pool.threadStarts() }
        for _ in 0..<12 { pool.idleThreadEnds() }
        #expect(!isOver(), "no more threads than wait in quiet times")
        for _ in 0..<396 { pool.threadStarts() }
        #expect(!isOver())
        for _ in 0..<199 { pool.idleThreadEnds() }
        #expect(!isOver())
        pool.idleThreadEnds()
        #expect(isOver())
        #expect(!isOver())
        for _ in 0..<150 { pool.idleThreadEnds() }
        #expect(isOver())
        for _ in 0..<300 { pool.threadStarts() }
        for _ in 0..<300 { pool.idleThreadEnds() }
        #expect(isOver())
    }
}
