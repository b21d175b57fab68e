// The webhook's queue: in order, at least once, despite refusals and restarts.

import Foundation
import HTTPTypes
@testable import SpoolgateDelivery
import SpoolgatePosix
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateJournal
@testable import SpoolgateRequests
@testable import SpoolgateSettings

@Suite struct WebhookTests {
    private func telling(
        _ url: String,
        lifetime: Duration = .seconds(600)
    ) throws -> GatewayUnderTest {
        let url = try ServiceURL(url)
        return try GatewayUnderTest { settings, _ in
            settings.events.webhook.url = url
            settings.events.webhook.timeout = .seconds(5)
            settings.events.lifetime = lifetime
        }
    }

    /// The events as another process opens them.
    private func events(_ test: GatewayUnderTest, url: String? = nil) throws -> Events {
        var settings = test.settings
        if let url { settings.events.webhook.url = try ServiceURL(url) }
        return Events(settings, spool: test.spool, log: Log(test.log.logger))
    }

    private func names(_ origin: LoopbackOrigin) -> [String] {
        origin.requests.map { request in
            let object = try? JSONSerialization.jsonObject(with: Data(request.content))
            return (object as? [String: Any])?["event"] as? String ?? "?"
        }
    }

    private func stop(_ events: Events) {
        #expect(events.stopSending(until: .after(.seconds(300))))
    }

    private func files(_ test: GatewayUnderTest) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: test.root + "/spool/events")
            .filter { $0 != "sender" }.sorted()
    }

    @Test("each event is posted, in order, with an identity of its own")
    func posted() throws {
        let origin = try LoopbackOrigin()
        let test = try telling(origin.base + "/hook?x=1")
        try test.gateway.events.startSending()
        _ = test.serve(.creation())
        try eventually("three events") { origin.requests.count == 3 }
        #expect(names(origin) == ["created", "completed", "delivered"])
        for request in origin.requests {
            #expect(request.line == "POST /hook?x=1 HTTP/1.1")
            #expect(request.values("content-type") == ["application/json"])
        }
        let identities = origin.requests.flatMap { $0.values("spoolgate-delivery") }
        #expect(Set(identities).count == 3)
        try eventually("the queue is empty") { try files(test).isEmpty }
        stop(test.gateway.events)
        let mode = try FileManager.default
            .attributesOfItem(atPath: test.root + "/spool/events")[.posixPermissions]
        #expect(mode as? Int == 0o700)
    }

    @Test("a refused event is sent again with the same identity, and later ones wait")
    func refused() throws {
        let origin = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                try connection.response(request.number < 2 ? "500 x" : "204 No Content")
            }
        }
        let test = try telling(origin.base)
        _ = test.createPartial()
        _ = test.createPartial()
        try test.gateway.events.startSending()
        try eventually("all are received") { origin.requests.count == 4 }
        let identities = origin.requests.flatMap { $0.values("spoolgate-delivery") }
        #expect(identities[0] == identities[1] && identities[1] == identities[2])
        #expect(identities[3] != identities[2])
        #expect(test.log.messages.count { $0 == "webhook failed" } == 1)
        stop(test.gateway.events)
    }

    @Test("events unsent before a restart are sent after it, and sent ones are not")
    func restart() throws {
        let origin = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                guard request.number < 2 else { return connection.waitForEnd() }
                try connection.response("200 OK", content: "ok")
            }
        }
        let test = try telling(origin.base)
        for _ in 0..<4 { _ = test.createPartial() }
        try test.gateway.events.startSending()
        try eventually("the third is being sent") { origin.requests.count == 3 }
        #expect(try files(test) == ["sending"])
        origin.stop()
        stop(test.gateway.events)
        _ = test.createPartial()
        #expect(try files(test) == ["pending", "sending"])
        let next = try LoopbackOrigin()
        let events = try events(test, url: next.base)
        try events.startSending()
        try eventually("the rest is sent") { next.requests.count == 3 }
        let before = origin.requests.flatMap { $0.values("spoolgate-delivery") }
        let after = next.requests.flatMap { $0.values("spoolgate-delivery") }
        #expect(before.count == 3 && after.first == before[2])
        #expect(Set(before).union(after).count == 5)
        try eventually("the queue is empty") { try files(test).isEmpty }
        stop(events)
    }

    @Test("one of two processes sends; the other takes over")
    func oneSender() throws {
        let origin = try LoopbackOrigin()
        let other = try LoopbackOrigin()
        let test = try telling(origin.base)
        try test.gateway.events.startSending()
        _ = test.createPartial()
        try eventually("the first sends") { origin.requests.count == 1 }
        let events = try events(test, url: other.base)
        try events.startSending()
        // Noted by the process that does not send.
        events.note(Event(.purged, of: nil, id: .random()))
        try eventually("the first sends") { origin.requests.count == 2 }
        #expect(other.requests.isEmpty)
        stop(test.gateway.events)
        events.note(Event(.purged, of: nil, id: .random()))
        try eventually("the second sends") { other.requests.count == 1 }
        stop(events)
    }

    @Test("a line that was added last is not removed with the file")
    func addedLast() throws {
        let test = try telling("http://127.0.0.1:1")
        let queue = EventQueue(spool: test.spool.directory)
        queue.add("{\"n\":1}", at: .now)
        let batch = try #require(try queue.batch())
        guard case .event = try batch.look() else { return #expect(Bool(false), "no event") }
        try batch.advance(marking: true)
        guard case .end = try batch.look() else { return #expect(Bool(false), "more events") }
        // By a process that had locked the file before its renaming.
        let late = try AppendedFile(path: test.root + "/spool/events/sending", mode: 0o600)
        try late.add(line: QueuedEvent(time: .now, json: "{\"n\":2}").line)
        #expect(try !batch.remove())
        guard case .event(let event) = try batch.look() else {
            return #expect(Bool(false), "the event is lost")
        }
        #expect(event.json == "{\"n\":2}")
        try batch.advance(marking: true)
        #expect(try batch.remove())
        #expect(try files(test).isEmpty)
    }

    @Test("a link in place of the queue is not followed", arguments: ["events", "events/pending"])
    func links(place: String) throws {
        let test = try telling("http://127.0.0.1:1")
        let lost = Monitor(0)
        let queue = EventQueue(spool: test.spool.directory) { count, _ in
            lost.update { $0 += count }
        }
        queue.add("{}", at: .now)
        let files = FileManager.default
        let elsewhere = test.root + "/elsewhere"
        try files.moveItem(atPath: test.root + "/spool/" + place, toPath: elsewhere)
        try files.createSymbolicLink(
            atPath: test.root + "/spool/" + place,
            withDestinationPath: elsewhere
        )
        #expect(lost.update { $0 } == 0)
        queue.add("{}", at: .now)
        #expect(lost.update { $0 } == 1)
    }

    @Test("a line that waited for the lock does not go into a file that is sent and removed")
    func waitedForLock() throws {
        let test = try telling("http://127.0.0.1:1")
        let queue = EventQueue(spool: test.spool.directory, patience: .seconds(60))
        queue.add("{\"n\":1}", at: .now)
        let path = test.root + "/spool/events/pending"
        var holder: AppendedFile? = try AppendedFile(path: path, mode: 0o600)
        #expect(try holder?.descriptor.tryLock(subject: path) == true)
        let isAdded = Monitor(false)
        try SpoolgatePosix.Thread.start(name: "adder") {
            queue.add("{\"n\":2}", at: .now)
            isAdded.update { $0 = true }
        }
        try eventually("it has the file open") {
            OpenDescriptors.of { $0 == path }.count == 2
        }
        try FileManager.default.removeItem(atPath: path)
        holder = nil
        let done: Bool? = isAdded.wait(until: .after(.seconds(300))) { $0 ? true : nil }
        #expect(done == true)
        let text = try String(contentsOfFile: path, encoding: .utf8)
        #expect(text.hasSuffix("{\"n\":2}\n"))
    }

    private func lines(_ test: GatewayUnderTest, in name: String) throws -> [Substring] {
        try String(contentsOfFile: "\(test.root)/spool/events/\(name)", encoding: .utf8)
            .split(separator: "\n")
    }

    @Test(
        "a burst of events from more threads than may run is written whole, and each thread's in order"
    )
    func burst() throws {
        let test = try telling("http://127.0.0.1:1")
        let lost = Monitor(0)
        let queue = EventQueue(spool: test.spool.directory) { count, _ in
            lost.update { $0 += count }
        }
        // The loss occurred with 4,191 streams opened at once.
        let gate = Gate()
        let threads = 1_397
        let ended = Monitor(0)
        for thread in 0..<threads {
            try SpoolgatePosix.Thread.start(name: "stream", stackSize: 128 << 10) {
                gate.pass()
                for number in 0..<3 {
                    queue.add("{\"thread\":\(thread),\"number\":\(number)}", at: .now)
                }
                ended.update { $0 += 1 }
            }
        }
        gate.open()
        let all: Bool? = ended.wait(until: .after(.seconds(60))) { $0 == threads ? true : nil }
        #expect(all == true)
        #expect(lost.update { $0 } == 0)
        try eventually("all are written", seconds: 60) {
            try lines(test, in: "pending").count == 4_191
        }
        var next: [Substring: Int] = [:]
        for line in try lines(test, in: "pending") {
            // - IDENTITY TIME {"thread":T,"number":N}
            let words = line.split { ":,}".contains($0) }
            let thread = words[words.count - 3]
            #expect(Int(words[words.count - 1]) == next[thread, default: 0])
            next[thread, default: 0] += 1
        }
        #expect(queue.added.count == 4_191)
    }

    @Test(
        "events do not wait for another process's lock on the queue, and are sent"
    )
    func lockKept() throws {
        let origin = try LoopbackOrigin()
        let test = try telling(origin.base)
        _ = test.createPartial()
        let path = test.root + "/spool/events/pending"
        var holder: AppendedFile? = try AppendedFile(path: path, mode: 0o600)
        #expect(try holder?.descriptor.tryLock(subject: path) == true)
        let (_, seconds) = Parallel.timed { for _ in 0..<20 { _ = test.createPartial() } }
        #expect(seconds < 20 * 0.2, "the events waited for the lock")
        #expect(try lines(test, in: "pending").count == 1)
        let late = try #require(try files(test).first { $0.hasPrefix("late-") })
        #expect(try lines(test, in: late).count == 20)
        // Left by a crashed process.
        let dead = QueuedEvent(time: .now, json: "{\"event\":\"dead\"}").line + "\n"
        try dead.write(
            toFile: test.root + "/spool/events/late-1-x",
            atomically: true,
            encoding: .utf8
        )
        _ = FileManager.default.createFile(
            atPath: test.root + "/spool/events/late-0-x",
            contents: nil
        )
        holder = nil
        try test.gateway.events.startSending()
        try eventually("all are sent", seconds: 60) { origin.requests.count == 22 }
        #expect(names(origin).first == "dead")
        #expect(Set(origin.requests.flatMap { $0.values("spoolgate-delivery") }).count == 22)
        #expect(!test.log.messages.contains("events lost"))
        try eventually("the queue is empty", seconds: 60) { try files(test).isEmpty }
        _ = test.createPartial()
        try eventually("the next one too", seconds: 60) { origin.requests.count == 23 }
        stop(test.gateway.events)
    }

    @Test("an event that is too old is dropped, with a line in the log")
    func tooOld() throws {
        let origin = try LoopbackOrigin(status: "503 x")
        let test = try telling(origin.base, lifetime: .zero)
        try test.gateway.events.startSending()
        _ = test.createPartial()
        try eventually("it is dropped") { test.log.messages.contains("event dropped") }
        try eventually("the queue is empty") { try files(test).isEmpty }
        #expect(origin.requests.count == 1)
        stop(test.gateway.events)
    }

    @Test("malformed lines are skipped")
    func damaged() throws {
        let origin = try LoopbackOrigin()
        let test = try telling(origin.base)
        _ = test.createPartial()
        let path = test.root + "/spool/events/pending"
        let line = try #require(FileManager.default.contents(atPath: path))
        var damaged = Data("\n- x\n- a 12 {\"half\n\0\0\0\n".utf8)
        damaged.append(Data(repeating: UInt8(ascii: "z"), count: 600_000))
        damaged.append(UInt8(ascii: "\n"))
        damaged.append(line)
        damaged.append(Data("- broken 1 {".utf8))
        try damaged.write(to: URL(filePath: path))
        try test.gateway.events.startSending()
        try eventually("the queue is empty") { try files(test).isEmpty }
        #expect(names(origin) == ["created"])
        stop(test.gateway.events)
    }

    @Test("a full queue drops events, and uploads continue")
    func full() throws {
        let gone = try LoopbackOrigin()
        gone.stop()
        let test = try telling(gone.base)
        _ = test.createPartial()
        let path = test.root + "/spool/events/pending"
        #expect(truncate(path, off_t(EventQueue.fileLimit - 10)) == 0)
        _ = test.createPartial()
        #expect(test.log.messages.count { $0 == "events lost" } == 1)
    }

    @Test("new settings apply while an event waits for a retry")
    func reloaded() throws {
        let refusing = try LoopbackOrigin(status: "500 x")
        let taking = try LoopbackOrigin()
        let test = try telling(refusing.base)
        try test.gateway.events.startSending()
        _ = test.createPartial()
        try eventually("it is refused") { !refusing.requests.isEmpty }
        var settings = test.settings
        settings.events.webhook.url = try ServiceURL(taking.base)
        test.gateway.reload(settings)
        try eventually("the other one has it") { taking.requests.count == 1 }
        settings.events.webhook.url = nil
        test.gateway.reload(settings)
        _ = test.createPartial()
        #expect(try files(test).isEmpty || names(taking).count == 1)
        stop(test.gateway.events)
    }

    @Test("many writers and a sender lose nothing and keep each writer's order")
    func concurrent() throws {
        let origin = try LoopbackOrigin()
        let test = try telling(origin.base)
        try test.gateway.events.startSending()
        // A daemon's thread also closes the file it adds to while another process holds the lock.
        let other = try events(test)
        try other.startSending()
        let ended = Monitor(0)
        for writer in 0..<6 {
            let events = writer % 2 == 0 ? test.gateway.events : other
            try SpoolgatePosix.Thread.start(name: "writer", stackSize: 1 << 20) {
                for number in 0..<40 {
                    var event = Event(.created, of: nil, id: .random())
                    event.offset = Int64(writer)
                    event.length = Int64(number)
                    events.note(event)
                }
                ended.update { $0 += 1 }
            }
        }
        let all: Bool? = ended.wait(until: .after(.seconds(300))) { $0 == 6 ? true : nil }
        #expect(all == true)
        try eventually("all are sent") { origin.requests.count >= 240 }
        #expect(!test.log.messages.contains("events lost"))
        var seen: [Int: [Int]] = [:]
        for request in origin.requests {
            let object = try JSONSerialization.jsonObject(with: Data(request.content))
            let members = try #require(object as? [String: Any])
            let writer = try #require(members["offset"] as? Int)
            seen[writer, default: []].append(try #require(members["length"] as? Int))
        }
        #expect(seen.count == 6)
        for numbers in seen.values { #expect(numbers == Array(0..<40)) }
        stop(test.gateway.events)
        stop(other)
    }
}
