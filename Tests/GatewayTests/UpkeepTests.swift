// The daemon removes only expired uploads, and none in use or promised.

import Foundation
@testable import SpoolgateDelivery
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

@Suite struct UpkeepTests {
    @Test(
        "partial uploads older than max-age are removed without a request, durably, and reported"
    )
    func partials() throws {
        let test = try GatewayUnderTest(tellsEvents: true) { $1.limits.maxAge = 3600 }
        let old = try (0..<70).map { _ in
            let location = test.createPartial()
            try test.age(location, by: 3700)
            return location
        }
        let young = test.createPartial()
        try test.age(young, by: 3500)
        test.disk.forget()
        try test.gateway.deliveries.startQueue()
        // A removal is visible before its event.
        try eventually("each old upload has its event") {
            let lines = try String(contentsOfFile: test.events, encoding: .utf8)
            return lines.ranges(of: "\"event\":\"expired\"").count >= old.count
        }
        #expect(try test.summaries().count == 1)
        #expect(try test.queue(of: young) == .incoming)
        #expect(test.log.messages.count { $0 == "upload expired" } == old.count)
        // Not one sync per upload and directory: 70 uploads in batches of 32, ordered by 32 shards, need at most 34
        // times one shard's syncs.
        let syncs = test.disk.count(.syncDirectory)
        #expect(syncs > 0 && syncs < 34 * 5 + 10)
        for location in old.prefix(3) { #expect(test.serve(.retrieval(location)).status == 404) }
    }

    @Test("content whose record is missing is removed after a week, and a damaged record is not")
    func corrupt() throws {
        let test = try GatewayUnderTest()
        let corrupt = "\(test.root)/spool/corrupt"
        let day = 86_400.0
        for (name, age) in [("a", 6 * day), ("b", 8 * day), ("c", 800 * day)] {
            let id = name + String(repeating: "0", count: 25)
            let path = "\(corrupt)/\(id)\(name == "c" ? "" : ".data")"
            try Data("content".utf8).write(to: URL(filePath: path))
            try FileManager.default.setAttributes(
                [.modificationDate: Date(timeIntervalSinceNow: -age)],
                ofItemAtPath: path
            )
        }
        test.gateway.deliveries.removeOld(in: [.delivered])
        #expect(try FileManager.default.contentsOfDirectory(atPath: corrupt).count == 3)
        test.gateway.deliveries.removeOld(in: Retention.queues)
        let left = try FileManager.default.contentsOfDirectory(atPath: corrupt).sorted()
        #expect(left.map { String($0.prefix(1)) } == ["a", "c"])
        #expect(test.log.messages.count { $0 == "upload expired" } == 1)
    }

    @Test("an abandoned temporary file is removed an hour later, without a restart")
    func temporaries() throws {
        let test = try GatewayUnderTest()
        let directory = "\(test.root)/spool/tmp"
        for (name, age) in [("old", 3700.0), ("young", 3500)] {
            try Data("content".utf8).write(to: URL(filePath: "\(directory)/\(name)"))
            try FileManager.default.setAttributes(
                [.modificationDate: Date(timeIntervalSinceNow: -age)],
                ofItemAtPath: "\(directory)/\(name)"
            )
        }
        test.gateway.deliveries.removeOld(in: Retention.queues)
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory) == ["young"])
    }

    @Test("an upload in use stays, however old it is, and its client continues")
    func inUse() throws {
        let test = try GatewayUnderTest { _, route in route.limits.maxAge = 3600 }
        let location = test.createPartial("hello")
        let append = ScriptedExchange.append(location, at: 5, [" you", .stuck], length: .unknown)
        let appending = try test.start(append)
        #expect(append.waitUntilStuck())
        try test.age(location, by: 7200)
        test.gateway.deliveries.removeOld(in: [.incoming, .delivered])
        #expect(try test.queue(of: location) == .incoming)
        // Its client returns before the next search.
        try test.age(location, by: 0)
        #expect(test.serve(.retrieval(location)).offset == 9)
        #expect(try appending.finish().isAborted)
    }

    @Test(
        "stored responses have their own lifetime, and those of a removed route the longest"
    )
    func responses() throws {
        let test = try GatewayUnderTest { _, route in
            route.limits.maxAge = 60
            route.responseRetention = .seconds(10 * 86_400)
        }
        let record = test.serve(.creation())
        let location = try #require(record.location)
        try test.age(location, by: 9 * 86_400)
        test.gateway.deliveries.removeOld(in: [.incoming, .delivered])
        #expect(try test.queue(of: location) == .delivered)
        test.reload { settings in
            settings.routes["other"] = settings.routes.removeValue(
                forKey: RouteSettings.defaultName
            )
            settings.routes["other"]?.responseRetention = .seconds(20 * 86_400)
        }
        try test.age(location, by: 19 * 86_400)
        test.gateway.deliveries.removeOld(in: [.incoming, .delivered])
        #expect(try test.queue(of: location) == .delivered)
        try test.age(location, by: 21 * 86_400)
        test.gateway.deliveries.removeOld(in: [.incoming, .delivered])
        #expect(try test.summaries().isEmpty)
        #expect(test.log.messages.contains("response expired"))
    }
}
