// Commands that inspect uploads before delivery, run in a real shell.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateDelivery
@testable import SpoolgateExchange
@testable import SpoolgateRequests
@testable import SpoolgateSettings

@Suite struct InspectionTests {
    private func inspecting(
        _ script: String,
        to target: UpstreamTarget? = nil,
        _ change: @escaping (inout Settings, inout RouteSettings) -> Void = { _, _ in }
    ) throws -> GatewayUnderTest {
        try GatewayUnderTest(target) { settings, route in
            route.inspection.command = ["/bin/sh", "-c", script, "inspect"]
            change(&settings, &route)
        }
    }

    private func detail(of record: ScriptedExchange.Record) throws -> String? {
        let object = try JSONSerialization.jsonObject(with: Data(record.content)) as? [String: Any]
        return object?["detail"] as? String
    }

    @Test(
        "an accepted upload is delivered; the command saw its content and metadata"
    )
    func taken() throws {
        let test = try inspecting(
            """
            cp "$1" "$1.seen"; mv "$1.seen" ROOT/seen; env | grep ^SPOOLGATE_ | sort > ROOT/env; \
            [ "$SPOOLGATE_FILE" = "$1" ]
            """
        )
        let record = test.serve(
            .creation(
                target: "/files/a%20b.txt?x=1",
                fields: [.contentType: "text/plain"],
                context: ExchangeContext(owner: "alice", interimStatuses: [104])
            )
        )
        #expect(record.status == 201)
        #expect(try test.drops() == [Array("hello".utf8)])
        let seen = try #require(FileManager.default.contents(atPath: test.root + "/seen"))
        #expect(seen == Data("hello".utf8))
        let lines = try String(contentsOfFile: test.root + "/env", encoding: .utf8)
            .split(separator: "\n")
        let values = lines.map { $0.split(separator: "=", maxSplits: 1) }
            .filter { $0[0] != "SPOOLGATE_UPLOAD" && $0[0] != "SPOOLGATE_FILE" }
        #expect(
            values.map { $0.joined(separator: "=") } == [
                "SPOOLGATE_LENGTH=5", "SPOOLGATE_NAME=a_b.txt", "SPOOLGATE_OWNER=alice",
                "SPOOLGATE_ROUTE=default", "SPOOLGATE_TARGET=/files/a%20b.txt?x=1",
                "SPOOLGATE_TYPE=text/plain",
            ]
        )
    }

    @Test(
        "a refused upload gets the status and the command's words, also on a repeated request"
    )
    func refused() throws {
        let test = try inspecting("printf 'bad\\n\\033thing'; exit 1")
        let location = test.createPartial()
        let record = test.serve(.append(location, at: 5, ["!"]))
        #expect(record.status == 422)
        #expect(record[.contentType] == "application/problem+json")
        #expect(record[.uploadComplete] == "?1")
        #expect(try detail(of: record) == "bad  thing")
        #expect(try test.drops() == [])
        #expect(try test.queue(of: location) == .delivered)
        let data = try #require(FileManager.default.enumerator(atPath: test.root + "/spool/data"))
        #expect(data.allObjects.compactMap { $0 as? String }.allSatisfy { $0.count < 2 })
        let again = test.serve(.append(location, at: 6))
        #expect(again.status == 422)
        #expect(again.content == record.content)
        #expect(test.log.messages.contains("upload refused"))
    }

    @Test("a client that takes the offset for success does not receive it for a refused upload")
    func refusedUnseen() throws {
        let test = try inspecting("[ -e ROOT/flag.no ] || { exit 2; }; exit 1")
        let location = test.createPartial(version: 6)
        let waiting = test.serve(.append(location, at: 5, ["!"], version: 6))
        #expect(waiting.status == 503)
        #expect(try test.queue(of: location) == .deferred)
        #expect(FileManager.default.createFile(atPath: test.root + "/flag.no", contents: nil))
        #expect(test.serve(.retrieval(location, version: 6)).status == 410)
        #expect(try test.drops() == [])
    }

    @Test(
        "any other result defers the upload with the reason",
        arguments: [
            ("echo no database >&2; exit 2", "/bin/sh exited with status 2: no database"),
            ("kill -SEGV $$", "/bin/sh was killed by signal 11"),
            (
                "exec sleep 600",
                "/bin/sh did not exit within 100ms (inspect.timeout) and was killed"
            ),
            (
                "trap '' TERM; sleep 600 & exec cat /dev/zero",
                "/bin/sh did not exit within 100ms (inspect.timeout) and was killed"
            ),
        ]
    )
    func failed(script: String, reason: String) throws {
        let test = try inspecting(script) { _, route in
            if !script.contains("exit"), !script.contains("SEGV") {
                route.inspection.timeout = .milliseconds(100)
            }
        }
        let location = test.createPartial()
        let record = test.serve(.append(location, at: 5, ["!"]))
        #expect(record.status == 503)
        #expect(record[.uploadComplete] == "?0")
        #expect(record.offset == 6)
        #expect(try test.drops() == [])
        let summary = try #require(try test.summaries().first)
        #expect(summary.queue == .deferred)
        #expect(summary.reason == reason)
        #expect(summary.attempts == 0)
    }

    @Test("a command that cannot be started defers the upload")
    func missing() throws {
        let test = try GatewayUnderTest { _, route in
            route.inspection.command = ["/nowhere/inspect"]
        }
        let record = test.serve(.creation(["x"]))
        #expect(record.status == 503)
        #expect(
            try test.summaries().first?.reason
                == "the inspection could not be started: posix_spawn /nowhere/inspect: No such file or directory"
        )
    }

    @Test("a limited number runs at a time; the others wait, with heartbeats")
    func concurrency() throws {
        let test = try inspecting(
            "echo >> ROOT/running; while [ ! -e ROOT/go ]; do sleep 0.02; done"
        ) { settings, route in
            route.inspection.maximumConcurrent = 2
            settings.interim.heartbeat = .milliseconds(100)
        }
        func runs() -> Int {
            FileManager.default.contents(atPath: test.root + "/running")?.count ?? 0
        }
        let exchanges = (0..<5).map { _ in ScriptedExchange.creation(["x"]) }
        let running = try exchanges.map { try test.start($0) }
        try eventually("two run") { runs() == 2 }
        // One from the creation; the others are heartbeats.
        for exchange in exchanges {
            try eventually("a heartbeat") { exchange.record.interims.count >= 3 }
        }
        #expect(runs() == 2)
        #expect(FileManager.default.createFile(atPath: test.root + "/go", contents: nil))
        for exchange in running { #expect(try exchange.finish().status == 201) }
        #expect(runs() == 5)
    }

    @Test("an upload without a place in time is deferred")
    func noPlace() throws {
        var settings = InspectionSettings()
        settings.command = ["/bin/sh", "-c", "echo > \"$1.up\"; exec sleep 600", "x"]
        settings.maximumConcurrent = 1
        let inspection = try #require(
            Inspection(settings, Histograms { Histogram(Histogram.medium) })
        )
        let path = NSTemporaryDirectory() + "/inspection-\(UInt64.random(in: 0...(.max)))"
        defer { try? FileManager.default.removeItem(atPath: path + ".up") }
        let creation = UploadCreation(
            id: UploadID(high: 1, low: 1),
            route: "r",
            head: RequestHead(method: .put, target: "/x"),
            created: .now
        )
        let isEnded = Monitor(false)
        struct Enough: Error {}
        try SpoolgatePosix.Thread.start(name: "first") {
            _ = try? inspection.run(path, about: creation, length: 0) { () throws(SpoolError) in
                if isEnded.update({ $0 }) { throw .busy(UploadID(high: 1, low: 1)) }
            }
            isEnded.update { $0 = false }
        }
        try eventually("the first runs") { FileManager.default.fileExists(atPath: path + ".up") }
        var calls = 0
        #expect(throws: SpoolError.self) {
            try inspection.run(path, about: creation, length: 0) { () throws(SpoolError) in
                calls += 1
                if calls == 2 { throw .busy(UploadID(high: 1, low: 2)) }
            }
        }
        isEnded.update { $0 = true }
        let ended: Bool? = isEnded.wait(until: .after(.seconds(300))) { $0 ? nil : true }
        #expect(ended == true, "an error of the wait must end the command")
    }

    @Test("ordinary uploads are inspected too, small and large", arguments: [3, 400_000])
    func plain(size: Int) throws {
        let test = try inspecting(
            "[ $(wc -c < \"$1\") = $SPOOLGATE_LENGTH ] || exit 9; grep -q virus \"$1\" && "
                + "{ echo found; exit 1; }; exit 0"
        )
        let clean = [UInt8](repeating: UInt8(ascii: "a"), count: size)
        let good = test.serve(ScriptedExchange(.put, "/a", [:], [.bytes(clean)]))
        #expect(good.status == 201)
        let bad = test.serve(ScriptedExchange(.put, "/b", [:], [.bytes(clean), "virus"]))
        #expect(bad.status == 422)
        #expect(try detail(of: bad) == "found")
        #expect(bad[.uploadComplete] == nil)
        #expect(try test.drops() == [clean])
        let left = try FileManager.default.contentsOfDirectory(atPath: test.root + "/spool/tmp")
        #expect(left == [])
    }

    @Test("a scanner's words about the file's path are reported with the client's name for it")
    func pathIsNotTold() throws {
        let test = try inspecting("echo \"$1: Eicar FOUND ($1)\"; exit 1")
        let record = test.serve(ScriptedExchange(.put, "/b.txt", [:], ["virus"]))
        #expect(try detail(of: record) == "b.txt: Eicar FOUND (b.txt)")
    }

    @Test("an ordinary upload that could not be inspected gets 503 and is removed")
    func plainFailed() throws {
        let test = try inspecting("exit 3")
        let record = test.serve(ScriptedExchange(.put, "/a", [:], ["x"]))
        #expect(record.status == 503)
        #expect(try test.drops() == [])
        #expect(test.log.messages.contains("ordinary upload failed"))
    }

    @Test("if a file cannot get a name, the command reads it through the descriptor")
    func throughDescriptor() throws {
        let test = try inspecting("case $1 in /proc/*) grep -q content \"$1\";; *) exit 4;; esac")
        test.disk.refuse(.link, errno: EPERM)
        let record = test.serve(ScriptedExchange(.put, "/a", [:], ["content"]))
        #expect(record.status == 201)
    }

    @Test("the client of an accepted upload does not wait for its inspection")
    func acceptedWhileInspected() throws {
        let test = try inspecting(
            "echo > ROOT/up; while [ ! -e ROOT/go ]; do sleep 0.02; done"
        ) { settings, route in
            route.reply = .accepted
            settings.inUseTimeout = .seconds(60)
        }
        try test.gateway.deliveries.startQueue()
        let record = test.serve(.creation(["x"]))
        let location = try #require(record.location)
        try eventually("it is inspected") {
            FileManager.default.fileExists(atPath: test.root + "/up")
        }
        #expect(test.serve(.retrieval(location)).status == 204)
        #expect(test.serve(.append(location, at: 1)).status == 202)
        #expect(!FileManager.default.fileExists(atPath: test.root + "/go"))
        #expect(FileManager.default.createFile(atPath: test.root + "/go", contents: nil))
        try eventually("it is delivered") { try test.drops().count == 1 }
    }

    @Test("the queue inspects as well")
    func queued() throws {
        let test = try inspecting("echo no; exit 1") { _, route in route.reply = .accepted }
        try test.gateway.deliveries.startQueue()
        let record = test.serve(.creation(["x"]))
        #expect(record.status == 202)
        try eventually("it is held") { try test.summaries().first?.holdCause == .failed }
        #expect(try test.summaries().first?.reason == "refused by the inspection: no")
        #expect(try test.drops() == [])
    }
}
