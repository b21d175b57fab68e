// The operator's commands for undelivered uploads: show, hold, release and requeue.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Synchronization
import Testing

@testable import SpoolgateSpool

/// An upstream whose behavior the test sets.
private final class Moody: Sendable {
    enum Mood { case silent, waiting, refusing, taking }

    private final class Word: Sendable { let mood = Mutex(Mood.silent) }

    private let word = Word()
    private let origin: LoopbackOrigin

    init() throws {
        let word = word
        origin = try LoopbackOrigin { connection in
            while try connection.receiveRequest() != nil {
                switch word.mood.withLock({ $0 }) {
                case .silent: return
                case .waiting: connection.waitForEnd()
                case .refusing: try connection.response("422 Unprocessable Content", content: "no")
                case .taking: try connection.response("200 OK", content: "taken")
                }
            }
        }
    }

    func become(_ mood: Mood) { word.mood.withLock { $0 = mood } }

    var base: String { origin.base }
    var count: Int { origin.requests.count }
}

@Suite("Operator commands")
struct OperatorTests {
    private let upstream: Moody
    private let sandbox: Sandbox

    init() throws {
        upstream = try Moody()
        sandbox = try Sandbox(
            upstream: upstream.base,
            // The long pause leaves only attempts that a test asks for.
            routeSettings: [
                "reply: accepted", "queue: {minimum-backoff: 1h}", "credential-fields: X-Api-Key",
            ]
        )
    }

    /// Returns the identity of an accepted upload.
    private func accepted(by method: String, in sandbox: Sandbox? = nil) throws -> String {
        let sandbox = sandbox ?? self.sandbox
        let created = try sandbox.ask(
            method,
            "/files/a.txt",
            [
                "Upload-Complete: ?0", "X-Odd: \u{9b}31m", "Authorization: Basic c2VjcmV0",
                "X-Api-Key: c2VjcmV0",
                "X-Said: this",
            ],
            content: Data()
        )
        let location = try #require(created["location"])
        let resource = String(location.drop(upTo: "/files/"))
        let response = try sandbox.append(resource, Data("content".utf8))
        #expect(response.status == 202)
        return try #require(resource.split(separator: "/").last.map(String.init))
    }

    private func awaitState(_ state: String, in sandbox: Sandbox? = nil) throws {
        let sandbox = sandbox ?? self.sandbox
        try eventually("the upload is \(state)") {
            try sandbox.spoolgate("list", "--json").output.contains("\"state\":\"\(state)\"")
        }
    }

    private func awaitStatus(_ words: String...) throws {
        try eventually("the status has \(words)") {
            let status = try sandbox.spoolgate("status", "--json").output
            return words.allSatisfy(status.contains)
        }
    }

    @Test("a held upload stays until it is released; the daemon then delivers it on request")
    func holdAndRelease() throws {
        let id = try accepted(by: "PUT")
        try eventually("the attempt has failed") {
            try sandbox.spoolgate("list", "--json").output.contains("\"attempts\":1")
                && sandbox.spoolgate("list").output.contains("deferred")
        }
        let hold = try sandbox.spoolgate("hold", id)
        #expect((hold.status, hold.errors) == (0, ""))
        #expect(hold.output == "held \(id): was deferred\n")
        // The daemon is notified at once.
        try awaitStatus("\"waiting\":0,\"next\":[]", "\"held\":1")
        let repeated = try sandbox.spoolgate("hold", id)
        #expect(repeated.status == 0)
        #expect(repeated.output.hasPrefix("held \(id): already on hold since 2"))
        #expect(try sandbox.spoolgate("list").output.contains("held"))
        upstream.become(.taking)
        sandbox.daemon.signal(SIGUSR1)
        let all = try sandbox.spoolgate("requeue", "--all")
        #expect(all.status == 0)
        #expect(all.output.hasPrefix("No uploads to requeue in deferred and hold of "))
        #expect(all.output.contains("1 upload held by an operator"))
        try awaitState("held")
        let release = try sandbox.spoolgate("release", id)
        #expect(release.status == 0)
        #expect(release.output == "released \(id): was on hold\n")
        try awaitState("delivered")
        try awaitStatus("\"held\":0")
        #expect(upstream.count == 2)
        let again = try sandbox.spoolgate("release", id)
        #expect(again.status == 65)
        #expect(again.errors == "spoolgate: \(id): not released: upload is delivered\n")
    }

    @Test("a long-deferred upload is attempted at once on request")
    func requeueDeferred() throws {
        let id = try accepted(by: "PUT")
        try awaitState("deferred")
        try eventually("the attempt is made") { upstream.count == 1 }
        upstream.become(.taking)
        try eventually("it can be queued again") {
            try sandbox.spoolgate("requeue", id, "--json").status == 0
        }
        sandbox.daemon.signal(SIGUSR1)
        try awaitState("delivered")
        #expect(upstream.count == 2)
    }

    @Test("the daemon runs the queue on request, and finds uploads it did not know")
    func queueRun() throws {
        upstream.become(.taking)
        let resource = try sandbox.create("/files/a.txt")
        _ = try sandbox.append(resource, Data("content".utf8), complete: false)
        let id = try #require(resource.split(separator: "/").last.flatMap { UploadID($0) })
        let spool = try Spool(existing: sandbox.directory.path() + "/spool")
        let upload = try eventually("the append is over") { try spool.tryLock(id) }
        // As if another daemon had accepted the upload and crashed.
        try upload.postpone(reason: nil, .queue(.now))
        upload.unlock()
        sandbox.daemon.signal(SIGUSR1)
        try awaitState("delivered")
        #expect(upstream.count == 1)
    }

    @Test("an upload that the upstream may already have is sent again only on an explicit request")
    func indeterminate() throws {
        let id = try accepted(by: "POST")
        try awaitState("indeterminate")
        for command in ["release", "hold"] {
            let refused = try sandbox.spoolgate(command, id)
            #expect((refused.status, refused.output) == (65, ""))
            #expect(refused.errors.contains("outcome is indeterminate"))
        }
        let all = try sandbox.spoolgate("requeue", "--all")
        #expect((all.status, all.output) == (65, ""))
        #expect(all.errors.contains("add --indeterminate"))
        #expect(try sandbox.spoolgate("requeue", "--all", "--queue", "deferred").status == 0)
        #expect(
            try sandbox.spoolgate(
                "purge",
                "--force",
                "--older-than",
                "0s",
                "--queue",
                "hold",
                "--dry-run"
            )
            .output.contains("(hold: indeterminate, ")
        )
        upstream.become(.taking)
        let requeue = try sandbox.spoolgate("requeue", id)
        #expect(requeue.status == 0)
        #expect(requeue.output.contains("the upstream may already have the upload"))
        sandbox.daemon.signal(SIGUSR1)
        try awaitState("delivered")
        #expect(upstream.count == 2)
        #expect(try sandbox.spoolgate("requeue", id).status == 65)
    }

    @Test("a daemon that finds an interrupted attempt reports it in the log and as an event")
    func crashed() throws {
        let sandbox = try Sandbox(
            upstream: upstream.base,
            routeSettings: ["reply: accepted"],
            extra: ["events: {to: journal}"]
        )
        upstream.become(.waiting)
        let id = try accepted(by: "POST", in: sandbox)
        try eventually("the upstream has it") { upstream.count == 1 }
        try sandbox.crash()
        try awaitState("indeterminate", in: sandbox)
        let lines = sandbox.log.split(separator: "\n").filter { $0.contains(id) }
        #expect(lines.count { $0.contains(" msg=\"delivery outcome unknown\" ") } == 1)
        #expect(lines.count { $0.contains("\"event\":\"held\"") } == 1)
        #expect(upstream.count == 1)
    }

    @Test(
        "show names the writer of an upload's content while the daemon knows it",
        .enabled(if: Command.find("nginx") != nil, "nginx is not installed")
    )
    func written() throws {
        let sandbox = try Sandbox(front: .nginxWithModule)
        let resource = try sandbox.create("/files/a.txt")
        _ = try sandbox.append(resource, Data(repeating: 7, count: 300_000), complete: false)
        let id = String(try #require(resource.split(separator: "/").last))
        let words =
            NginxConfiguration.hasLane
            ? "300000 bytes by nginx"
            : "300000 bytes by the gateway (the route has spool-receive: off)"
        let shown = try sandbox.spoolgate("show", id)
        #expect(shown.output.contains("written        \(words)\n"), "\(shown.output)")
        let json = try sandbox.spoolgate("show", "--json", id).output
        #expect(
            json.contains(
                NginxConfiguration.hasLane
                    ? #""written":{"nginx":300000,"gateway":0,"result":null}"#
                    : #""written":{"nginx":0,"gateway":300000,"result":"off"}"#
            ),
            "\(json)"
        )
        // The record does not contain the writer.
        try sandbox.crash()
        let after = try sandbox.spoolgate("show", id)
        #expect(after.status == 0 && !after.output.contains("written"), "\(after.output)")
        sandbox.kill()
        let dead = try sandbox.spoolgate("show", "--json", id)
        #expect(dead.status == 0 && dead.output.contains(#""written":null"#), "\(dead.output)")
    }

    @Test("show prints everything about one upload but credentials")
    func show() throws {
        upstream.become(.refusing)
        let id = try accepted(by: "POST")
        try awaitState("failed")
        let shown = try sandbox.spoolgate("show", id)
        #expect(shown.status == 0)
        for line in [
            "upload         \(id)\n", "state          failed\n",
            "reason         the upstream responded with 422\n", "offset         7\n",
            "attempts       1\n", "response       422\n", "request        POST /files/a.txt\n",
            "x-said: this\n", "x-odd: \u{fffd}31m\n", "authorization: (not shown)\n",
            "x-api-key: (not shown)\n",
        ] {
            #expect(shown.output.lowercased().contains(line.lowercased()), "\(shown.output)")
        }
        let json = try sandbox.spoolgate("show", "--json", id).output
        let object = try #require(
            JSONSerialization.jsonObject(with: Data(json.utf8)) as? [String: Any]
        )
        #expect(object["state"] as? String == "failed")
        #expect(object["status"] as? Int == 422)
        #expect(!(shown.output + json).contains("c2VjcmV0"))
        upstream.become(.taking)
        let all = try sandbox.spoolgate("requeue", "--all", "--json")
        #expect(all.status == 0)
        #expect(all.output.contains("\"action\":\"requeued\""))
        sandbox.daemon.signal(SIGUSR1)
        try awaitState("delivered")
    }

    @Test("check lists the settings of every route that differ from the defaults, and no others")
    func check() throws {
        let file = sandbox.directory.path() + "/other.yaml"
        let socket = sandbox.directory.path() + "/other.sock"
        try """
        listen: unix:\(socket)
        spool: {directory: \(sandbox.directory.path())/other}
        routes:
          default: {upstream: http://localhost:3000, anonymous: refuse}
          photos:
            upstream: http://localhost:3001
            anonymous: allow
            limits: {max-size: 1GiB, max-age: 168h}
        """.write(toFile: file, atomically: true, encoding: .utf8)
        let check = try Command(Sandbox.program, ["check", "--config", file])
        #expect(check.errors.isEmpty)
        #expect(
            check.output == """
                \(file): ok
                  listen: unix:\(socket)
                  spool.directory: \(sandbox.directory.path())/other
                  routes.default.upstream: http://localhost:3000
                  routes.default.anonymous: refuse
                  routes.photos.upstream: http://localhost:3001
                  routes.photos.anonymous: allow
                  routes.photos.limits.max-size: 1GiB

                """
        )
    }

    @Test(
        "an upload in use, an unknown one and one in the wrong state are left alone, with separate exit codes"
    )
    func refused() throws {
        let resource = try sandbox.create("/files/busy.bin")
        let id = try #require(resource.split(separator: "/").last.map(String.init))
        let whole = try sandbox.spoolgate("requeue", id)
        #expect((whole.status, whole.output) == (65, ""))
        let sender = try sandbox.startAppend(resource, length: 8, sent: Data("half".utf8))
        try eventually("the upload is in use") {
            try sandbox.spoolgate("show", id).output.contains("(in use)")
        }
        for command in ["requeue", "hold", "release"] {
            let busy = try sandbox.spoolgate(command, id)
            #expect((busy.status, busy.output) == (75, ""))
            #expect(busy.errors.contains("in use"))
            let unknown = String(repeating: "0", count: 26)
            #expect(try sandbox.spoolgate(command, id, unknown).status == 66)
            #expect(try sandbox.spoolgate(command).status == 64)
            #expect(try sandbox.spoolgate(command, "no-identity").status == 64)
        }
        #expect(try sandbox.spoolgate("show", String(repeating: "0", count: 26)).status == 66)
        #expect(try sandbox.spoolgate("requeue", "--all", id).status == 64)
        // The commands do not ask the lock's holder to release the upload.
        sender.send(Data("half".utf8))
        #expect(try sender.read().status == 202)
    }
}
