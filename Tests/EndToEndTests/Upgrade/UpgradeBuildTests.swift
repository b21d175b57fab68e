// Both directions between two builds: `make upgrade-test`.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

@Suite(
    "From one build to another",
    .enabled(if: PreviousBuild.program != nil, PreviousBuild.isMissing)
)
struct UpgradeBuildTests {
    private let previous = PreviousBuild.program ?? ""
    private let current = Sandbox.program

    @Test(
        "a spool is stored",
        .enabled(if: PreviousBuild.stored != nil, "Tests/Lab/Upgrade/store.sh")
    )
    func store() throws {
        let stage = try UpgradeStage(previous, .node, sources: PreviousBuild.sources)
        try stage.write(UpgradeCase.all)
        try stage.endWriting()
        try StoredSpool.store(stage, of: PreviousBuild.stored ?? "")
    }

    @Test(
        "upgrade: uploads of the previous build are unchanged, and finish once",
        arguments: UpgradeStage.Kind.allCases
    )
    func upgrade(kind: UpgradeStage.Kind) throws {
        // nginx keeps the previous files and module.
        let stage = try UpgradeStage(previous, kind, sources: PreviousBuild.sources)
        try stage.write(UpgradeCase.all, isAfterPowerCut: kind.isAfterPowerCut)
        try stage.endWriting()
        let events = try WaitingEvents(in: stage.sandbox.spool.path())
        try stage.replace(by: current)
        try stage.check()
        try stage.carry(UpgradeCase.all)
        try stage.checkPurge()
        try events.checkSent(stage)
    }

    @Test(
        "downgrade: uploads of this build are unchanged for the previous one, and for this one again",
        arguments: UpgradeStage.Kind.allCases,
        [0, 1]
    )
    func downgrade(kind: UpgradeStage.Kind, half: Int) throws {
        let stage = try UpgradeStage(current, kind)
        let cases = UpgradeCase.all + UpgradeCase.ofNewer
        try stage.write(cases, isAfterPowerCut: kind.isAfterPowerCut)
        try stage.endWriting()
        let events = try WaitingEvents(in: stage.sandbox.spool.path())
        try stage.replace(by: previous)
        try stage.check()
        try stage.carry(cases) { $0 % 2 == half }
        try stage.replace(by: current)
        try stage.check()
        try stage.carry(cases)
        try stage.checkPurge()
        try events.checkSent(stage)
    }

    // MARK: Uploads in progress

    @Test("the client's command continues across both", arguments: [true, false])
    func command(isUpgrade: Bool) throws {
        let (first, second) = isUpgrade ? (previous, current) : (current, previous)
        let world = try UploadCommandWorld(build: first)
        let file = try world.sandbox.randomFile(6 << 20)
        world.proxy.hold(at: 2 << 20)
        let command = try world.start(file.url.path(), world.url("across.bin"))
        try eventually("some content is sent") {
            world.proxy.passed >= 2 << 20 && world.states().contains { $0.contains("\ntoken: ") }
        }
        world.sandbox.kill()
        world.sandbox.build = second
        try world.sandbox.startAgain()
        world.proxy.hold(at: nil)
        let status = command.wait()
        let log = try String(contentsOfFile: world.file("command.log"), encoding: .utf8)
        #expect(status == 0, "\(log)")
        #expect(try world.delivered("across.bin") == [file.bytes])
        // Acknowledged content is not sent again.
        #expect(world.proxy.passed < 8 << 20)
    }

    @Test("a stopping daemon finishes its deliveries, and the other build continues")
    func drained() throws {
        let gate = Gate()
        let origin = try LoopbackOrigin { connection in
            while try connection.receiveRequest() != nil {
                gate.pass()
                try connection.response("201 Created")
            }
        }
        let sandbox = try Sandbox(upstream: origin.base, front: .nginxWithModule, build: previous)
        let bytes = try sandbox.randomFile(1 << 20).bytes
        let delivered = try sandbox.create("/files/delivered")
        let sender = try sandbox.startAppend(delivered, length: bytes.count, sent: bytes)
        let cut = try sandbox.create("/files/cut")
        let cutSender = try sandbox.startAppend(
            cut,
            length: bytes.count,
            sent: bytes.prefix(600_000)
        )
        try eventually("the upstream has one upload") { origin.requests.count == 1 }
        try eventually("the other upload is in the spool") {
            try sandbox.spoolgate("list", "--json").output.contains("\"offset\":600000")
        }
        sandbox.daemon.signal(SIGTERM)
        try eventually("it drains") {
            // The previous build may be older than this message.
            sandbox.log.contains("shutdown started") || sandbox.log.contains("msg=draining")
        }
        gate.open()
        #expect(try sender.read().status == 201)
        #expect(sandbox.daemon.wait() == 0)
        cutSender.cut()

        sandbox.build = current
        try sandbox.startAgain()
        #expect(try sandbox.append(delivered, offset: bytes.count).status == 201)
        #expect(try sandbox.offset(of: cut) == 600_000)
        let response = try sandbox.append(cut, offset: 600_000, bytes.suffix(from: 600_000))
        #expect(response.status == 201)
        #expect(origin.requests.map { Data($0.content) } == [bytes, bytes])
    }

    @Test("no promise is broken if a daemon of either build crashes and the other follows")
    func kills() throws {
        let tally = try KillWorld.play(
            KillPlan.seeds(usually: 25),
            [],
            again: "make upgrade-test",
            and: previous
        ) { KillPlan(seed: $0, manner: nil) }
        print("kill -9, two builds: \(tally.text)")
    }

    @Test(
        "two builds that share one spool exchange uploads",
        arguments: [0, 1]
    )
    func beside(first: Int) throws {
        let builds = first == 0 ? [previous, current] : [current, previous]
        let folder = try ScratchDirectory()
        let settings = ["queue: {minimum-backoff: 1s, maximum-backoff: 1s}"]
        func make(_ build: String, _ spool: String?) throws -> Sandbox {
            try Sandbox(
                upstream: "unix:\(folder.file("upstream"))",
                routeSettings: settings,
                routes: [
                    "accepted": ["upstream: unix:\(folder.file("later"))", "reply: accepted"]
                        + settings
                ],
                front: .nginxServing(
                    ["default", "accepted"].map { name in
                        """
                        location ^~ /files/\(name)/ {
                            include pass*.conf;
                            fastcgi_param SPOOLGATE_ROUTE \(name);
                            fastcgi_param SPOOLGATE_ORIGIN $scheme://$host:$server_port;
                            include location*.conf;
                        }

                        """
                    }.joined()
                ),
                spool: spool,
                build: build
            )
        }
        let origin = try LoopbackOrigin(socketPath: folder.file("upstream"), status: "201 Created")
        let one = try make(builds[0], nil)
        let two = try make(builds[1], one.spool.path())
        let bytes = try one.randomFile(2 << 20).bytes
        let resource = try one.create("/files/default/given")
        let sender = try one.startAppend(
            resource,
            length: bytes.count,
            sent: bytes.prefix(1 << 20)
        )
        try eventually("content arrives") { try one.spooledOffset() > 600_000 }
        // A newer request gets the upload from any daemon.
        let offset = try two.offset(of: resource)
        #expect(offset > 600_000 && offset <= 1 << 20)
        sender.cut()
        let response = try two.append(resource, offset: offset, bytes.suffix(from: offset))
        #expect(response.status == 201)
        #expect(try one.append(resource, offset: bytes.count).status == 201)
        #expect(origin.requests.map { Data($0.content) } == [bytes])

        // Both queues have the uploads; one daemon delivers each.
        for number in 0..<20 {
            let sandbox = number % 2 == 0 ? one : two
            let response = try sandbox.ask(
                number % 3 == 0 ? "PUT" : "POST",
                "/files/accepted/\(number)",
                ["Upload-Complete: ?1"],
                content: Data(repeating: UInt8(number), count: 200_000)
            )
            #expect(response.status == 202)
        }
        let later = try LoopbackOrigin(socketPath: folder.file("later"), status: "201 Created")
        try eventually("all are delivered", seconds: 120) {
            // The previous build does not know what this one records of an accepted upload.
            let list = try (first == 0 ? two : one).spoolgate("list", "--json").output
            return list.components(separatedBy: "\"state\":\"delivered\"").count == 22
        }
        #expect(Set(later.all.map(\.target)).count == 20 && later.all.count == 20)
    }

    // MARK: Unknown words and formats

    @Test("the previous build leaves an upload with an unknown word alone")
    func newerWord() throws {
        let sandbox = try Sandbox(build: current)
        let resource = try sandbox.create("/files/newer")
        _ = try sandbox.append(resource, Data("newer".utf8), complete: false)
        let other = try sandbox.create("/files/other")
        sandbox.kill()
        let id = try #require(resource.split(separator: "/").last.flatMap { UploadID($0) })
        let record = sandbox.spool.appending(path: "uploads/\(id.description.prefix(1))/\(id)")
        // A reserved word that no build writes yet.
        try RecordSlots.edit(record, of: id) {
            $0.replacingOccurrences(of: " reason=", with: " node=a reason=")
        }
        let bytes = try Data(contentsOf: record)

        sandbox.build = previous
        try sandbox.startAgain()
        #expect(try sandbox.ask("HEAD", resource).status == 500)
        #expect(try sandbox.append(resource, offset: 5, Data("x".utf8)).status == 500)
        #expect(try sandbox.append(other, Data("other".utf8)).status == 201)
        for queue in ["incoming", "deferred", "hold", "delivered", "corrupt"] {
            let purge = try sandbox.spoolgate(
                "purge",
                "--force",
                "--older-than",
                "0s",
                "--queue",
                queue
            )
            #expect(!purge.output.contains(id.description), "\(queue)")
        }
        sandbox.kill()
        #expect(try Data(contentsOf: record) == bytes)

        try RecordSlots.edit(record, of: id) {
            $0.replacingOccurrences(of: " node=a reason=", with: " reason=")
        }
        sandbox.build = current
        try sandbox.startAgain()
        #expect(try sandbox.append(resource, offset: 5, Data("!".utf8)).status == 201)
        let delivered = try sandbox.delivered().map { try Data(contentsOf: $0) }
        #expect(delivered.contains(Data("newer!".utf8)))
    }

    @Test("both builds refuse a spool of another format, and change nothing in it")
    func otherFormat() throws {
        let sandbox = try Sandbox(build: current)
        let resource = try sandbox.create("/files/x")
        _ = try sandbox.append(resource, Data("some".utf8), complete: false)
        sandbox.kill()
        let format = sandbox.spool.appending(path: "format")
        let own = try String(contentsOf: format, encoding: .utf8)
        try "spoolgate-spool 3\n".write(to: format, atomically: false, encoding: .utf8)
        func files() throws -> [String: Data?] {
            try FileManager.default.subpathsOfDirectory(atPath: sandbox.spool.path())
                .reduce(into: [:]) { files, path in
                    files[path] = try? Data(contentsOf: sandbox.spool.appending(path: path))
                }
        }
        let before = try files()
        for build in [previous, current] {
            let start = sandbox.log.count
            sandbox.build = build
            try sandbox.launch()
            #expect(sandbox.daemon.wait() == 73)
            let said = sandbox.log.dropFirst(start)
            #expect(said.contains("spoolgate-spool 3") && said.contains("spoolgate-spool 2"))
            #expect(try files() == before)
        }
        try own.write(to: format, atomically: false, encoding: .utf8)
        try sandbox.startAgain()
        #expect(try sandbox.offset(of: resource) == 4)
    }

    // MARK: Names and settings

    @Test(
        "a file that the previous build delivered without recording it exists only once",
        .enabled(if: SystemCalls.canTrace, "strace cannot attach here")
    )
    func dropped() throws {
        let sandbox = try Sandbox(
            routeSettings: ["queue: {minimum-backoff: 1s, maximum-backoff: 1s}"],
            build: previous
        )
        let bytes = try sandbox.randomFile(300_000).bytes
        let name = "Content-Disposition: attachment; filename*=UTF-8''%C3%BCber%20alles.txt"
        // A POST would be held for the operator.
        let created = try sandbox.ask(
            "PUT",
            "/files/x",
            ["Upload-Complete: ?0", name],
            content: Data()
        )
        let resource = String(try #require(created["location"]).drop(upTo: "/files/"))
        _ = try sandbox.append(resource, bytes.prefix(1_000), complete: false)
        // At this call the file has both names, and the record an attempt in progress.
        let calls = try SystemCalls(
            of: sandbox,
            ["fsync"],
            fault: "signal=SIGKILL",
            on: sandbox.directory.appending(path: "delivered").path()
        )
        _ = try? sandbox.append(resource, offset: 1_000, bytes.suffix(from: 1_000))
        #expect(sandbox.daemon.wait() == -SIGKILL)
        calls.stop()
        #expect(try sandbox.delivered().count == 1)

        sandbox.build = current
        try sandbox.startAgain()
        try eventually("it is delivered: \(sandbox.log)", seconds: 60) {
            try sandbox.spoolgate("list", "--json").output.contains("\"state\":\"delivered\"")
        }
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [bytes])
        #expect(try sandbox.append(resource, offset: bytes.count).status == 201)
    }

    @Test("the previous build names a new setting and refuses it")
    func settings() throws {
        let sandbox = try Sandbox(routeSettings: ["redirects: {login: [/login]}"], build: current)
        sandbox.build = previous
        let refused = try sandbox.spoolgate("check")
        #expect(refused.status == 78, "\(refused.status)")
        #expect(refused.errors.contains("routes.default.redirects: "))
    }
}
