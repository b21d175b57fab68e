// A dictionary of limited size.

import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@Suite("A table of the most recent entries")
struct RecentTableTests {
    @Test("a new key replaces the oldest one, and a new value does not make a key younger")
    func order() {
        var table = RecentTable<Int, String>(maximum: 3)
        for key in 1...3 { table[key] = "\(key)" }
        table[1] = "again"
        #expect(table[1] == "again")
        table[4] = "4"
        #expect((1...4).map { table[$0] } == [nil, "2", "3", "4"])
        table[3] = nil
        #expect(table.count == 2)
        table[5] = "5"
        #expect((2...5).map { table[$0] } == [nil, nil, "4", "5"])
    }

    @Test("a key that was removed and added again is as young as a new one")
    func again() {
        var table = RecentTable<Int, Int>(maximum: 3)
        for key in 1...3 { table[key] = key }
        table[1] = nil
        table[1] = 10
        table[4] = 4
        #expect((1...4).map { table[$0] } == [10, nil, 3, 4])
    }

    @Test("it holds the last keys in any order of changes")
    func random() {
        var generator = SystemRandomNumberGenerator()
        for maximum in [1, 2, 7] {
            var table = RecentTable<Int, Int>(maximum: maximum)
            var model: [Int: (value: Int, number: Int)] = [:]
            var additions = 0
            for value in 0..<2_000 {
                let key = Int.random(in: 0..<12, using: &generator)
                if Bool.random(using: &generator) {
                    table[key] = nil
                    model[key] = nil
                } else if let known = model[key] {
                    table[key] = value
                    model[key] = (value, known.number)
                } else {
                    table[key] = value
                    additions += 1
                    model[key] = (value, additions)
                    model = model.filter { $0.value.number > additions - maximum }
                }
                #expect((0..<12).map { table[$0] } == (0..<12).map { model[$0]?.value })
            }
        }
    }

    @Test("an entry costs the same after many others")
    func cost() {
        var table = RecentTable<UInt64, Int>(maximum: 1 << 14)
        func add(_ count: Int) {
            for _ in 0..<count { table[.random(in: 0...(.max))] = 1 }
        }
        func cost() -> Double {
            (0..<5).map { _ in
                let before = ThreadTime.seconds
                add(500)
                return ThreadTime.seconds - before
            }.min() ?? 0
        }
        add(1 << 14)
        let early = cost()
        add(10 << 14)
        let late = cost()
        #expect(late < 8 * early, "\(early) s, then \(late) s")
    }
}
