// Concurrent requests for one upload: the newest wins in bounded time.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("Racing requests", .serialized)
struct RaceTests {
    /// In seconds: far less than waiting until the rival gives up.
    private static let bound = RaceTrack.inUse / 2

    private func report(
        _ what: String,
        _ daemons: Daemons,
        _ seconds: [Double],
        bound: Double = Self.bound
    ) {
        let maximum = seconds.max() ?? 0
        let mean = seconds.reduce(0, +) / Double(max(1, seconds.count))
        print(
            String(
                format: "race: %@, %@: mean %.3f s, most %.3f s",
                what,
                daemons.testDescription,
                mean,
                maximum
            )
        )
        #expect(maximum < bound, "\(what), \(daemons.testDescription)")
    }

    @Test(
        "two appends at one offset: all bytes come from the same append",
        arguments: Daemons.allCases
    )
    func twoAppends(_ daemons: Daemons) throws {
        let track = try RaceTrack(daemons)
        let settled = track.base()
        var seconds: [Double] = []
        for round in 0..<10 {
            let target = "/files/twice-\(round)"
            let resource = try track.first.create(target)
            let ports = [track.first.port, track.second.port]
            let (ends, time) = Parallel.timed {
                Parallel.run(2) { index in
                    try WireClient(port: ports[index]).ask(
                        "PATCH",
                        resource,
                        [
                            "Upload-Offset: 0", "Upload-Complete: ?0",
                            "Content-Type: application/partial-upload",
                        ],
                        content: Data(repeating: UInt8(index + 1), count: 3 << 20)
                    ).status
                }
            }
            seconds.append(time)
            let statuses = ends.map { try? $0.get() }
            #expect(statuses.count { $0 == 204 } <= 1, "\(statuses)")
            #expect(statuses.allSatisfy { [204, 409, 503, nil].contains($0) }, "\(statuses)")
            let offset = try track.second.offset(of: resource)
            if statuses.contains(204) { #expect(offset == 3 << 20) }
            let end = try track.second.append(resource, offset: offset)
            #expect(end.status == 201)
            let content = track.upstream.contents(to: target)
            #expect(content.map(\.count) == [offset])
            if let content = content.first, let byte = content.first {
                #expect(
                    content == Data(repeating: byte, count: offset),
                    "the content mixes both appends"
                )
            }
        }
        report("two appends", daemons, seconds)
        try settled()
    }

    @Test(
        "the offset that HEAD reports is accepted by the next append",
        arguments: Daemons.allCases
    )
    func appendAgainstRetrieval(_ daemons: Daemons) throws {
        let track = try RaceTrack(daemons)
        let (_, bytes) = try track.first.randomFile(4 << 20)
        let resource = try track.first.create("/files/told")
        let settled = track.base()
        var (offset, seconds) = (0, [Double]())
        for _ in 0..<(daemons == .one ? 10 : 3) {
            let part = bytes[offset..<min(offset + 300_000, bytes.count)]
            let writer = try track.first.startAppend(
                resource,
                offset: offset,
                length: bytes.count - offset,
                sent: part
            )
            try eventually("content arrives") { try track.first.spooledOffset() > offset }
            let (told, time) = try Parallel.timed { try track.second.offset(of: resource) }
            #expect(told > offset && told <= offset + part.count)
            (offset, seconds) = (told, seconds + [time])
            #expect(throws: WireClient.Broken.self, "the older append was not aborted") {
                try writer.read()
            }
        }
        report("offset retrieval against an append", daemons, seconds)
        let end = try track.first.append(resource, offset: offset, bytes.suffix(from: offset))
        #expect(end.status == 201)
        #expect(track.upstream.contents(to: "/files/told") == [bytes])
        try settled()
    }

    @Test("DELETE ends a running append, and nothing stays", arguments: Daemons.allCases)
    func cancellation(_ daemons: Daemons) throws {
        let track = try RaceTrack(daemons)
        let settled = track.base()
        var seconds: [Double] = []
        for _ in 0..<(daemons == .one ? 5 : 2) {
            let resource = try track.first.create("/files/cancelled")
            let writer = try track.first.startAppend(
                resource,
                offset: 0,
                length: 1 << 20,
                sent: Data(count: 200_000)
            )
            try eventually("content arrives") { try track.first.spooledOffset() > 0 }
            let port = track.second.port
            let (response, time) = try Parallel.timed {
                try WireClient(port: port).ask("DELETE", resource)
            }
            #expect(response.status == 204)
            seconds.append(time)
            writer.send(Data(count: (1 << 20) - 200_000))
            let end = try? writer.read().status
            #expect(end == nil || end == 404)
            #expect(try WireClient(port: port).ask("HEAD", resource).status == 404)
        }
        report("cancellation of an append", daemons, seconds)
        #expect(track.upstream.requests(to: "/files/cancelled").isEmpty)
        #expect(try SpoolInspection(track.first).faults() == [])
        try settled()
    }

    // Long because the writer must return often enough to be starved, if it could be.
    @Test(
        "a storm of HEADs: the returning writer makes progress",
        arguments: Daemons.allCases
    )
    func storm(_ daemons: Daemons) throws {
        let track = try RaceTrack(daemons)
        let (_, bytes) = try track.first.randomFile(8 << 20)
        let settled = track.base()
        let client = ResumingClient(
            .init(
                number: 0,
                method: "POST",
                target: "/files/storm-writer-*",
                content: bytes,
                isCareful: true,
                version: 10,
                partialAppends: 0,
                breaksAfter: 0,
                pace: 10_000
            ),
            port: track.first.port,
            track.moments
        )
        track.moments.begin(clients: 1)
        let moments = track.moments
        moments.lookOut(for: .created, holds: false)
        Thread.detachNewThread {
            client.run(until: Date(timeIntervalSinceNow: 60))
            moments.clientEnded()
        }
        #expect(moments.waitForIt())
        let location = try #require(client.creations.first?.location)
        let ports = [track.first.port, track.second.port]
        let ends = Parallel.run(50) { index in
            var (seconds, broken) = ([Double](), 0)
            let end = Date(timeIntervalSinceNow: 3)
            while Date() < end {
                let (times, time) = try Parallel.timed {
                    try Self.retrieveOffset(location, port: ports[index % 2])
                }
                seconds.append(time)
                broken += times - 1
            }
            return (seconds: seconds, broken: broken)
        }
        let during = try track.first.spooledOffset()
        #expect(during > 0, "the writer made no progress in the storm")
        track.moments.waitForClients()
        let seconds = try ends.flatMap { try $0.get().seconds }
        let broken = try ends.reduce(0) { $0 + (try $1.get().broken) }
        print(
            "race: \(seconds.count) HEADs in the storm, \(broken) aborted, "
                + "\(client.retrievals) by the writer, which had \(during) of \(bytes.count) bytes stored at its end"
        )
        // So few requests stay below all limits of `clients`. Only a request that waits for another process is aborted
        // for a newer one.
        #expect(daemons == .two || broken == 0)
        #expect(broken <= seconds.count)
        // A request that is overtaken repeatedly is served after the storm at the latest.
        report("HEAD in a storm", daemons, seconds, bound: RaceTrack.inUse)
        #expect(client.faults == [])
        #expect(client.creations.map(\.end) == [.responded])
        #expect(track.upstream.contents(to: "/files/storm-writer-0") == [bytes])
        try settled()
    }

    /// Returns the number of requests until the offset is reported.
    private static func retrieveOffset(_ location: String, port: Int) throws -> Int {
        let deadline = Date(timeIntervalSinceNow: RaceTrack.inUse)
        var times = 0
        while true {
            times += 1
            do {
                let status = try WireClient(port: port).ask("HEAD", location).status
                if status == 204 { return times }
                throw NeverHappened(description: "HEAD: \(status)")
            } catch let error as WireClient.Broken where Date() > deadline {
                throw error
            } catch is WireClient.Broken {}
        }
    }

    @Test("completion against purge: delivered once, or removed before it began")
    func completionAgainstPurge() throws {
        let track = try RaceTrack(.one)
        let sandbox = track.first
        var seconds: [Double] = []
        var gone = 0
        for round in 0..<15 {
            let target = "/files/purged-\(round)"
            let resource = try sandbox.create(target)
            let bytes = Data(repeating: UInt8(round), count: 200_000)
            let purge = try Daemon(
                Sandbox.program,
                ["purge", "--force", "--older-than", "0s", "--config", sandbox.settingsFile],
                log: sandbox.directory.appending(path: "purge.log")
            )
            // During the purge's start, search or end.
            usleep(UInt32.random(in: 0...120_000))
            let (response, time) = try Parallel.timed {
                try sandbox.append(resource, bytes)
            }
            #expect(purge.wait() == 0)
            seconds.append(time)
            gone += response.status == 404 ? 1 : 0
            #expect([201, 404].contains(response.status))
            let content = track.upstream.contents(to: target)
            #expect(content == (response.status == 201 ? [bytes] : []))
        }
        print("race: \(gone) of \(seconds.count) uploads were purged before their completion")
        report("completion against purge", .one, seconds)
        #expect(try SpoolInspection(sandbox).faults() == [])
    }

    @Test("stalled clients block no one, and give way at once on their own uploads")
    func stalledClients() throws {
        let track = try RaceTrack(.one)
        let settled = track.base(deliveries: 10)
        let port = track.first.port
        let resources = try (0..<40).map { try track.first.create("/files/stalled-\($0)") }
        // Half have sent content, half only the header section.
        let stalled = try resources.enumerated().map { index, resource in
            try track.first.startAppend(
                resource,
                offset: 0,
                length: 1 << 20,
                sent: Data(count: index.isMultiple(of: 2) ? 5_000 : 0)
            )
        }
        try eventually("all are being received") {
            let uses = try track.first.spoolgate("list", "--json").output
                .components(separatedBy: "\n")
                .count { $0.contains("\"in-use\":true") }
            return uses == stalled.count
        }
        let others = Parallel.run(10) { index in
            try Parallel.timed {
                let response = try WireClient(port: port)
                    .ask("PUT", "/files/other-\(index)", content: Data(count: 500_000))
                guard response.status == 201 else {
                    throw WireClient.Broken(description: "\(response.status)")
                }
            }.seconds
        }
        report("an upload beside stalled ones", .one, try others.map { try $0.get() })
        let threads = track.first.daemon.footprint().threads
        let retrievals = Parallel.run(resources.count) { index in
            try Parallel.timed {
                let response = try WireClient(port: port).ask("HEAD", resources[index])
                guard response["upload-offset"] == (index.isMultiple(of: 2) ? "5000" : "0") else {
                    throw WireClient.Broken(description: "\(response.status)")
                }
            }.seconds
        }
        report("offset retrieval of a stalled one", .one, try retrievals.map { try $0.get() })
        // Their clients keep the stalled connections open.
        try settled()
        print("race: \(threads) threads with stalled clients")
        withExtendedLifetime(stalled) {}
    }
}
