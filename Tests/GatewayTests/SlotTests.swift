// The sharing of delivery slots: the threshold, the line under many threads, and deliveries while one application
// hangs.

import Foundation
import HTTPTypes
@testable import SpoolgateExchange
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateDelivery
@testable import SpoolgateRequests
@testable import SpoolgateSettings

@Suite struct SlotTests {
    private static func client(_ number: Int) -> ClientName {
        ClientName(owner: ExactText("client \(number)"), address: nil)
    }

    private static func user(_ target: Int, _ client: Int, route: String? = nil) -> SlotUser {
        SlotUser(
            target: "t\(target)",
            route: route ?? "r\(target)",
            client: self.client(client)
        )
    }

    /// Takes all possible slots; returns their number.
    private static func fill(_ line: inout SlotLine, _ user: SlotUser) -> Int {
        var count = 0
        while line.take(user) { count += 1 }
        return count
    }

    // MARK: The threshold

    @Test("one target has at most two thirds of the slots, one client two thirds of that share")
    func twoThirds() {
        for total in 1...40 {
            var line = SlotLine(DeliveryBounds(total: total))
            let share = (2 * total + 2) / 3
            let ofOne = Self.fill(&line, Self.user(0, 0))
            #expect(ofOne == (2 * share + 2) / 3)
            for client in 1...40 { _ = Self.fill(&line, Self.user(0, client)) }
            // The rest of the target's share; another target gets a third.
            let ofOther = Self.fill(&line, Self.user(1, 0))
            #expect(ofOther > 0 || total < 3)
            var lone = SlotLine(DeliveryBounds(total: total))
            let taken = (0...40).reduce(0) { $0 + Self.fill(&lone, Self.user(0, $1)) }
            #expect(taken == share)
        }
    }

    @Test("a newcomer always finds a slot next to a target or client at its limit")
    func newcomer() {
        for total in 4...40 {
            var line = SlotLine(DeliveryBounds(total: total))
            _ = Self.fill(&line, Self.user(0, 0))
            let hasClient = line.take(Self.user(0, 1))
            #expect(hasClient, "another client of the target, of \(total)")
            for client in 1...40 { _ = Self.fill(&line, Self.user(0, client)) }
            // Two routes to one target count as one.
            let hasRoute = line.take(Self.user(0, 300, route: "other"))
            #expect(!hasRoute, "the same target by another route, of \(total)")
            let hasTarget = line.take(Self.user(1, 0))
            #expect(hasTarget, "another target, of \(total)")
        }
    }

    @Test("within a route's own limit a client has two thirds as well")
    func routeBound() {
        for (maximum, share) in [(1, 1), (2, 2), (3, 2), (4, 3), (9, 6)] {
            var line = SlotLine(DeliveryBounds(total: 100, byRoute: ["r0": maximum]))
            let ofOne = Self.fill(&line, Self.user(0, 0))
            #expect(ofOne == share)
            let hasOther = line.take(Self.user(0, 1))
            #expect(hasOther == (maximum > share))
        }
    }

    @Test(
        "after any sequence, no request waits that the threshold admits",
        arguments: 1...8
    )
    func noLostWakeUp(seed: UInt64) {
        var random = SplitMix(seed: seed)
        var bounds = DeliveryBounds(total: Int(random.next() % 40), byRoute: ["r1": 3])
        var line = SlotLine(bounds)
        var (held, waiting): ([SlotUser], [(number: Int, user: SlotUser)]) = ([], [])
        func letIn(_ numbers: [Int]) {
            // In order: of two requests with the same needs, the earlier one first.
            #expect(numbers == numbers.sorted())
            for number in numbers {
                guard let index = waiting.firstIndex(where: { $0.number == number }) else {
                    Issue.record("a request got two slots, or had left")
                    continue
                }
                let user = waiting.remove(at: index).user
                #expect(!waiting.prefix(index).contains { $0.user == user }, "out of order")
                held.append(user)
            }
        }
        for _ in 0..<500 {
            switch random.next() % 8 {
            case 0...3 where waiting.count < 40:
                let user = Self.user(Int(random.next() % 4), Int(random.next() % 5))
                if line.take(user) {
                    held.append(user)
                } else {
                    waiting.append((line.lineUp(user), user))
                }
            case 4...5 where !held.isEmpty:
                letIn(line.giveBack(held.remove(at: Int(random.next() % UInt64(held.count)))))
            case 6 where !waiting.isEmpty:
                let left = waiting.remove(at: Int(random.next() % UInt64(waiting.count)))
                let (hasLeft, again) = (line.leave(left.number), line.leave(left.number))
                #expect(hasLeft && !again)
            case 7 where random.once(in: 20):
                bounds = DeliveryBounds(total: Int(random.next() % 40), byRoute: ["r1": 3])
                letIn(line.setBounds(bounds))
            default: break
            }
            #expect(line.waiting == waiting.count)
            for user in Set(waiting.map(\.user)) {
                var other = line
                guard !other.take(user) else {
                    Issue.record("\(user) waits although a slot is free")
                    return
                }
            }
        }
        // Every request gets a slot once slots return.
        letIn(line.setBounds(DeliveryBounds(total: 10)))
        while let user = held.popLast() { letIn(line.giveBack(user)) }
        #expect(waiting.isEmpty && line.waiting == 0)
    }

    @Test("a stream of newcomers does not starve a waiting request")
    func noStarvation() {
        var line = SlotLine(DeliveryBounds(total: 6))
        var (held, random) = ([SlotUser](), SplitMix(seed: 7))
        for number in 0..<20 {
            let user = Self.user(number % 3, 0)
            if line.take(user) { held.append(user) } else { _ = line.lineUp(user) }
        }
        let mine = line.lineUp(Self.user(9, 9))
        for turn in 0..<1_000 {
            let ended = held.remove(at: Int(random.next() % UInt64(held.count)))
            let numbers = line.giveBack(ended)
            if numbers.contains(mine) { return #expect(turn < 20) }
            // The requests are interchangeable.
            held += numbers.map { _ in ended }
            for other in 0..<2 { _ = line.lineUp(Self.user(other, 0)) }
            if held.isEmpty { break }
        }
        Issue.record("the request still waits")
    }

    // MARK: Threads

    @Test("under many threads every request gets its slot, and all slots return")
    func threads() throws {
        let bounds = DeliveryBounds(
            total: 5,
            byRoute: ["b": 2],
            targets: ["a": "one", "b": "one", "c": "two"]
        )
        let slots = DeliverySlots(bounds)
        let now = Monitor((count: 0, maximum: 0))
        let results = Parallel.run(48) { index -> Int in
            var random = SplitMix(seed: UInt64(index))
            var taken = 0
            for _ in 0..<60 {
                let place = slots.lineUp(
                    ofRoute: random.one(of: "a", "b", "c"),
                    for: Self.client(Int(random.next() % 3))
                )
                // Some poll, some leave.
                var slot = place.take(
                    until: .after(random.once(in: 4) ? .microseconds(200) : .seconds(60))
                )
                if slot == nil, random.once(in: 2) { continue }
                slot = slot ?? place.take(until: .after(.seconds(60)))
                guard let slot else { return 0 }
                let count = now.update { now -> Int in
                    now.count += 1
                    now.maximum = max(now.maximum, now.count)
                    return now.count
                }
                #expect(count <= 5)
                taken += 1
                now.update { $0.count -= 1 }
                slot.giveBack()
                slot.giveBack()
            }
            return taken
        }
        for result in results { #expect(try result.get() > 20) }
        #expect(slots.waiting == 0)
        let route = slots.lineUp(ofRoute: "c", for: Self.client(0))
        #expect(route.take(until: .after(.zero)) != nil)
    }

    @Test("a request that leaves when just admitted passes its slot to the next")
    func leaves() throws {
        let slots = DeliverySlots(DeliveryBounds(total: 1))
        let first = try #require(
            slots.lineUp(ofRoute: "a", for: Self.client(0)).take(until: .after(.zero))
        )
        let second = slots.lineUp(ofRoute: "a", for: Self.client(1))
        let third = slots.lineUp(ofRoute: "a", for: Self.client(2))
        #expect(second.take(until: .after(.zero)) == nil)
        first.giveBack()
        second.leave()
        let slot = third.take(until: .after(.zero))
        #expect(slot != nil)
        slot?.giveBack()
        #expect(slots.waiting == 0)
    }

    // MARK: Deliveries

    /// Responds to `/slow` once the gate opens, to all others at once.
    private static func application(_ gate: Gate) throws -> LoopbackOrigin {
        try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                if request.target == "/slow" { gate.pass() }
                try connection.response("201 Created")
            }
        }
    }

    private static func upload(_ owner: String, _ target: String, route: String? = nil)
        -> ScriptedExchange
    {
        .creation(
            target: target,
            context: ExchangeContext(route: route, owner: ExactText(owner), interimStatuses: [104])
        )
    }

    @Test(
        "one client's unanswered uploads do not stop other clients' deliveries"
    )
    func hangingApplication() throws {
        let gate = Gate()
        let (hanging, other) = (try Self.application(gate), try Self.application(gate))
        let test = try GatewayUnderTest(hanging.target) { settings, _ in
            settings.maximumDeliveries = 12
            settings.inUseTimeout = .seconds(600)
            var route = RouteSettings()
            route.limits.minSize = 0
            route.upstream.targets = [other.target]
            settings.routes["other"] = route
            // The same application by another path.
            route.upstream.targets = [.http(base: hanging.base + "/base")]
            settings.routes["same"] = route
        }
        let hogs = try (0..<64).map { _ in try test.start(Self.upload("hog", "/slow")) }
        try eventually("one client has its share") { hanging.requests.count == 6 }
        try eventually("the others wait") { test.gateway.deliveries.slots.waiting == 58 }
        for _ in 0..<20 {
            #expect(test.serve(Self.upload("other", "/fast")).status == 201)
            #expect(test.serve(Self.upload("hog", "/fast", route: "other")).status == 201)
            #expect(test.serve(Self.upload("other", "/fast", route: "same")).status == 201)
        }
        #expect(hanging.requests(to: "/slow").count == 6)
        gate.open()
        for hog in hogs { #expect(try hog.finish().status == 201) }
        #expect(hanging.requests(to: "/slow").count == 64)
    }

    @Test(
        "unanswered uploads in the queue do not stop others in the queue"
    )
    func hangingQueue() throws {
        let gate = Gate()
        let (hanging, other) = (try Self.application(gate), try Self.application(gate))
        let test = try QueueScene.gateway(hanging.target) { settings, route in
            settings.maximumDeliveries = 12
            route.reply = .accepted
            var second = route
            second.upstream.targets = [other.target]
            settings.routes["other"] = second
        }
        for _ in 0..<40 { #expect(test.serve(Self.upload("hog", "/slow")).status == 202) }
        try test.gateway.deliveries.startQueue()
        try eventually("one client has its share") { hanging.requests.count == 6 }
        #expect(test.serve(Self.upload("other", "/fast")).status == 202)
        #expect(test.serve(Self.upload("hog", "/fast", route: "other")).status == 202)
        try eventually("the client's own is delivered") { hanging.requests(to: "/fast").count == 1 }
        try eventually("the other route's too") { other.requests.count == 1 }
        #expect(hanging.requests(to: "/slow").count == 6)
        gate.open()
        try eventually("all are delivered") { hanging.requests(to: "/slow").count == 40 }
    }
}
