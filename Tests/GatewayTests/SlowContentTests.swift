// The requests interrupted when threads run short, and the rate over a minute.

import Foundation
import HTTPTypes
import SpoolgateExchange
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateRequests
@testable import SpoolgateSettings

@Suite("Slow content")
struct SlowContentTests {
    private final class World: Sendable {
        let seconds = Monitor(0.0)
        let asked = Monitor<[String]>([])
        let slow: SlowContent

        init() {
            let seconds = seconds
            slow = SlowContent { .after(.seconds(seconds.update { $0 })) }
        }

        func begin(_ client: String, _ name: String) -> SlowContent.Entry {
            slow.begin(ClientName(owner: ExactText(client), address: nil)) { [asked] in
                asked.update { $0.append(name) }
            }
        }

        /// Advances the clock while requests receive content at `rates` in bytes per second.
        func pass(_ seconds: Double, _ rates: [(SlowContent.Entry, Int)]) {
            self.seconds.update { $0 += seconds }
            for (entry, rate) in rates { entry.received.add(Int(Double(rate) * seconds)) }
        }
    }

    @Test("the slowest requests of the client with the most are interrupted first, each once")
    func order() {
        let world = World()
        let alone = world.begin("alone", "alone")
        let many = (0..<3).map { world.begin("many", "many \($0)") }
        world.pass(20, [(alone, 1), (many[0], 300), (many[1], 100), (many[2], 200)])
        for _ in 0..<5 { _ = world.slow.letGo() }
        // With one request left each, the slowest of all is next.
        #expect(world.asked.update { $0 } == ["many 1", "many 2", "alone", "many 0"])
        #expect(world.slow.letGo() == nil)
    }

    @Test("a fast or new request is left alone")
    func leftAlone() {
        let world = World()
        let fast = world.begin("a", "fast")
        world.pass(20, [(fast, 1 << 20)])
        _ = world.begin("a", "new")
        #expect(world.slow.letGo() == nil)
        // Earlier content no longer counts.
        world.pass(20, [(fast, 0)])
        #expect(world.slow.letGo() != nil)
        #expect(world.slow.letGo() != nil)
        #expect(Set(world.asked.update { $0 }) == ["fast", "new"])
    }

    @Test(
        "if many begin at once, only the client with the most is interrupted, after a second"
    )
    func burst() {
        let world = World()
        let old = world.begin("old", "old")
        world.pass(20, [(old, 100)])
        for number in 0..<3 { _ = world.begin("many", "many \(number)") }
        world.pass(0.9, [(old, 100)])
        // Other clients' requests are less than a second old.
        #expect(world.slow.letGo() == ClientName(owner: ExactText("old"), address: nil))
        world.pass(0.1, [])
        _ = world.begin("alone", "alone")
        world.pass(1, [])
        for _ in 0..<2 { _ = world.slow.letGo() }
        let asked = world.asked.update { $0.dropFirst() }
        #expect(asked.count == 2 && asked.allSatisfy { $0.hasPrefix("many") }, "\(asked)")
    }

    @Test("a finished request is not interrupted")
    func over() {
        let world = World()
        let entry = world.begin("a", "one")
        world.pass(20, [])
        world.slow.end(entry)
        #expect(world.slow.letGo() == nil)
        #expect(world.asked.update { $0 }.isEmpty)
    }

    @Test("a rate is missed if a whole minute brought less, and 0 is never missed")
    func minimum() {
        var rate = MinimumRate(100)
        func isMissed(_ received: Int64, at seconds: Int) -> Bool {
            rate.isMissed(received: received, now: .after(.seconds(seconds)))
        }
        #expect(!isMissed(0, at: 59))
        // Slightly more than 100 a second, since a second is slightly longer here.
        #expect(!isMissed(6_100, at: 60))
        #expect(!isMissed(6_100, at: 119))
        #expect(isMissed(12_000, at: 121))
        var any = MinimumRate(0)
        let isAnyMissed = any.isMissed(received: 0, now: .after(.seconds(1_000)))
        #expect(!isAnyMissed)
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
