// The requests interrupted when threads run short, and the rate over a minute.

import Foundation
import HTTPTypes
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateRequests
@testable import SpoolgateSettings

@Suite("Slow content")
struct SlowContentTests {
    private final class World: Sendable {
        let present = Monitor(Deadline.after(.zero))
        let spared = Monitor<[String]>([])
        let slow: SlowContent

        init() {
            let present = present
            slow = SlowContent { present.update { $0 } }
        }

        func begin(_ client: String, _ name: String, of upload: UploadID? = .random())
            -> SlowContent.Entry
        {
            slow.begin(ClientName(owner: ExactText(client), address: nil), upload: upload, .init())
            {
                [spared] in
                spared.update { $0.append(name) }
            }
        }

        /// Advances the clock while requests receive content at `rates` in bytes per second.
        func pass(_ seconds: Double, _ rates: [(SlowContent.Entry, Double)] = []) {
            present.update { $0 = $0.later(by: .seconds(seconds)) }
            for (entry, rate) in rates { entry.content.add(Int(rate * seconds)) }
        }

        /// Asks for the end of one request after another, as often as one may end.
        func interrupt(_ limit: SlowContent.Limit, times: Int = 1) -> [String] {
            let before = spared.update { $0.count }
            for _ in 0..<times {
                _ = slow.interruptSlowest(limit)
                pass(0.25)
            }
            return spared.update { Array($0.dropFirst(before)) }
        }
    }

    @Test("the slowest requests of the client with the most are interrupted first, each once")
    func order() {
        let world = World()
        let alone = world.begin("alone", "alone")
        let many = (0..<3).map { world.begin("many", "many \($0)") }
        world.pass(20, [(alone, 1), (many[0], 300), (many[1], 100), (many[2], 200)])
        // With one request left each, the slowest of all is next.
        #expect(world.interrupt(.fast, times: 5) == ["many 1", "many 2", "alone", "many 0"])
    }

    @Test("a fast or new request is left alone")
    func leftAlone() {
        let world = World()
        let fast = world.begin("a", "fast")
        world.pass(20, [(fast, 1e6)])
        _ = world.begin("a", "new")
        #expect(world.interrupt(.fast) == [])
        // Earlier content no longer counts.
        world.pass(20, [(fast, 0)])
        #expect(Set(world.interrupt(.fast, times: 3)) == ["fast", "new"])
    }

    @Test(
        "if many begin at once, only the client with the most is interrupted, after a second"
    )
    func burst() {
        let world = World()
        let old = world.begin("old", "old")
        world.pass(20, [(old, 100)])
        for number in 0..<3 { _ = world.begin("many", "many \(number)") }
        world.pass(0.5, [(old, 100)])
        // Other clients' requests are less than a second old.
        #expect(world.interrupt(.fast) == ["old"])
        world.pass(0.25)
        _ = world.begin("alone", "alone")
        world.pass(1)
        let spared = world.interrupt(.fast, times: 2)
        #expect(spared.count == 2 && spared.allSatisfy { $0.hasPrefix("many") }, "\(spared)")
    }

    @Test("a finished request is not interrupted")
    func over() {
        let world = World()
        let entry = world.begin("a", "one")
        world.pass(20)
        world.slow.end(entry)
        #expect(world.interrupt(.fast) == [])
    }

    @Test(
        "who may be interrupted: by rate, by the client's ability to resume, and after a return",
        arguments: [0, 1, 30, 100, 10_000, 1_000_000.0],
        [SlowContent.Limit.lowestRate, .fast]
    )
    func limits(rate: Double, limit: SlowContent.Limit) {
        for canResume in [true, false] {
            for hasReturned in [false, true] {
                let world = World()
                let upload = canResume ? UploadID.random() : nil
                if hasReturned {
                    let first = world.begin("a", "first", of: upload)
                    world.pass(20, [(first, 0)])
                    #expect(world.interrupt(.lowestRate) == ["first"])
                    world.slow.end(first)
                }
                func isInterrupted() -> Bool {
                    let entry = world.begin("a", "request", of: upload)
                    world.pass(20, [(entry, rate)])
                    defer { world.slow.end(entry) }
                    return world.interrupt(limit) == ["request"]
                }
                let isSlow = limit == .fast && canResume ? rate < 262_144 : rate < 64
                let isSpared = hasReturned && canResume && rate >= 1
                #expect(isInterrupted() == (isSlow && !isSpared), "\(canResume) \(hasReturned)")
                world.pass(600)
                #expect(isInterrupted() == isSlow, "ten minutes later")
            }
        }
    }

    @Test("the lowest rate is measured for ten seconds")
    func patience() {
        let world = World()
        _ = world.begin("a", "a")
        world.pass(9.9)
        #expect(world.interrupt(.lowestRate) == [])
        #expect(world.interrupt(.lowestRate) == ["a"])
    }

    @Test("however many ask, one request is interrupted in a quarter of a second")
    func seldom() {
        let world = World()
        for number in 0..<100 { _ = world.begin("\(number)", "\(number)") }
        world.pass(20)
        for _ in 0..<4 {
            for _ in 0..<100 { _ = world.slow.interruptSlowest(.fast) }
            for _ in 0..<100 { _ = world.slow.interruptSlowest(.lowestRate) }
            world.pass(0.25)
        }
        #expect(world.spared.update { $0.count } == 4)
    }

    @Test("a choice considers only some requests, and the next choice the next ones")
    func hand() {
        let world = World()
        let entries = (0..<1000).map { world.begin("\($0)", "\($0)") }
        var rates = entries.map { ($0, 1e6) }
        rates[900].1 = 100
        world.pass(20, rates)
        var choices = 1
        while world.slow.interruptSlowest(.fast) == nil, choices < 100 { choices += 1 }
        // The first fourteen choices consider 896 requests.
        #expect(choices == 15)
        #expect(world.spared.update { $0 } == ["900"])
        for entry in entries { world.slow.end(entry) }
        #expect(world.interrupt(.fast) == [])
    }

    @Test("requests that end in any order are forgotten, and no others")
    func ends() {
        let world = World()
        var open: [String: SlowContent.Entry] = [:]
        var left: Set<String> = []
        for number in 0..<300 {
            open["\(number)"] = world.begin("a", "\(number)")
            left.insert("\(number)")
            if number % 3 > 0, let (name, entry) = open.randomElement() {
                world.slow.end(entry)
                open[name] = nil
                left.remove(name)
            }
        }
        world.pass(20)
        let spared = world.interrupt(.fast, times: 2 * left.count)
        #expect(spared.count == left.count)
        #expect(Set(spared) == left)
    }

    /// Clients for `percent` of 100 threads, each at `rate`, that return a second after an end.
    // Long because at most four are interrupted in each second.
    @Test(
        "slow clients that return are interrupted at most four times a second, each once in ten minutes",
        arguments: [80, 90, 95, 120, 150],
        [1, 30, 100, 10_000.0]
    )
    func returning(percent: Int, rate: Double) {
        let world = World()
        let uploads = (0..<percent).map { _ in UploadID.random() }
        var open: [Int: SlowContent.Entry] = [:]
        var waiting = Array(uploads.indices)
        var ends = [Int](repeating: 0, count: percent)
        let seconds = 200
        for second in 0..<seconds {
            for _ in waiting {
                if open.count >= 80 { _ = world.slow.interruptSlowest(.lowestRate) }
                if open.count >= 100 { _ = world.slow.interruptSlowest(.fast) }
            }
            // The interrupted requests leave; their clients wait.
            let spared = world.spared.update { spared in
                defer { spared = [] }
                return spared
            }
            var returning = waiting
            waiting = []
            for name in spared {
                guard let number = Int(name), let entry = open[number] else { continue }
                world.slow.end(entry)
                open[number] = nil
                ends[number] += 1
                waiting.append(number)
            }
            returning.removeAll { number in
                guard open.count < 100 else { return false }
                open[number] = world.begin("\(number)", "\(number)", of: uploads[number])
                return true
            }
            waiting += returning
            #expect(spared.count <= 1, "the clock advances once a second")
            world.pass(1, open.values.map { ($0, rate) })
            if second > percent + 20 { #expect(spared.isEmpty, "it dies down") }
        }
        #expect(ends.allSatisfy { $0 <= 1 })
    }

    @Test("an interrupted upload keeps its received bytes, and continues")
    func goesOn() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let test = try GatewayUnderTest(origin.target)
        let whole = test.serve(.creation([], complete: false))
        let location = try #require(whole[.location])
        let letGo = ScriptedExchange.Step.fails(.released)
        let cut = test.serve(.append(location, at: 0, ["abc", letGo], complete: false))
        #expect(cut.isAborted)
        let rest = test.serve(.append(location, at: 3, ["def"], complete: true))
        #expect(rest.status == 201)
        #expect(origin.requests.first?.content == Array("abcdef".utf8))
    }
}
