// `list` and `show`: states, the upstream's status, the next step, and paths.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("list and show")
struct ListTests {
    private func listed(_ sandbox: Sandbox) throws -> [String: Any] {
        let line = try sandbox.spoolgate("list", "--json").output
        return try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any] ?? [:]
    }

    /// The only upload's cells, by column.
    private func row(_ sandbox: Sandbox) throws -> [String: String] {
        let table = try sandbox.spoolgate("list").output.split(separator: "\n").map { line in
            line.split(separator: /\ {2,}/).map(String.init)
        }
        // The last line has the totals.
        let cells = try #require(table.dropLast().last)
        return Dictionary(zip(table[0], cells)) { first, _ in first }
    }

    @Test(
        "an upload that the upstream refused is not listed as delivered, and its status is shown",
        arguments: [("201 Created", "delivered"), ("413 Content Too Large", "refused")]
    )
    func responded(status: String, word: String) throws {
        let code = try #require(Int(status.prefix(3)))
        let origin = try LoopbackOrigin(status: status, content: "said")
        let sandbox = try Sandbox(upstream: origin.base)
        let resource = try sandbox.create("/files/a.bin")
        let response = try sandbox.append(resource, Data("content".utf8))
        #expect(response.status == code)
        #expect(try row(sandbox)["STATE"] == "\(word) \(code)")
        let object = try listed(sandbox)
        #expect(object["state"] as? String == word)
        #expect(object["status"] as? Int == code)
        #expect(object["waits-for"] is NSNull)
        let id = try #require(object["upload"] as? String)
        let shown = try sandbox.spoolgate("show", id).output
        #expect(shown.contains("state          \(word)\n"))
        #expect(shown.contains("response       \(code)\n"))
        let plain = try sandbox.curl([
            "-d", "x", "-o", "/dev/null", "http://localhost:\(sandbox.port)/files/form",
        ])
        #expect(plain.status == 0)
        #expect(sandbox.log.contains("upload refused by upstream") == (word == "refused"))
        #expect(sandbox.log.contains("ordinary upload refused by upstream") == (word == "refused"))
        #expect(sandbox.log.contains("ordinary upload delivered") == (word == "delivered"))
    }

    @Test("an upload is listed as partial without a request, and as receiving with one")
    func partial() throws {
        let sandbox = try Sandbox()
        let resource = try sandbox.create("/files/a.bin")
        try eventually("the creation has ended") { try row(sandbox)["STATE"] == "partial" }
        #expect(try row(sandbox)["NEXT"] == "client")
        #expect(try listed(sandbox)["waits-for"] as? String == "client")
        let sender = try sandbox.startAppend(resource, length: 8, sent: Data("half".utf8))
        try eventually("it is being received") { try row(sandbox)["STATE"] == "receiving" }
        #expect(try listed(sandbox)["waits-for"] is NSNull)
        sender.send(Data("half".utf8))
        #expect(try sender.read().status == 201)
        #expect(try row(sandbox)["STATE"] == "delivered 201")
    }

    @Test(
        "an upload that waits for its client says so; one in the queue shows the time of the next attempt"
    )
    func waiting() throws {
        let sandbox = try Sandbox(upstream: "http://127.0.0.1:1")
        let resource = try sandbox.create("/files/a.bin")
        let response = try sandbox.append(resource, Data("content".utf8))
        #expect(response.status == 502)
        let cells = try row(sandbox)
        #expect((cells["STATE"], cells["NEXT"]) == ("deferred", "client"))
        let object = try listed(sandbox)
        #expect(object["waits-for"] as? String == "client")
        #expect(object["next-attempt"] is NSNull)
        let id = try #require(object["upload"] as? String)
        #expect(try sandbox.spoolgate("show", id).output.contains("waits for      client\n"))
        #expect(try sandbox.spoolgate("hold", id).status == 0)
        #expect(try listed(sandbox)["waits-for"] as? String == "operator")
        #expect(try sandbox.spoolgate("release", id).status == 0)
        // The next attempt is due at once; the state shows between two attempts.
        try eventually("the upload waits for the queue") {
            try listed(sandbox)["waits-for"] as? String == "queue"
        }
        try eventually("its next attempt is listed") { try row(sandbox)["NEXT"] != "client" }
    }

    @Test("--watch redraws the terminal until it is interrupted")
    func watch() throws {
        let sandbox = try Sandbox()
        let screen = sandbox.directory.appending(path: "screen")
        let number = sandbox.directory.path() + "/number"
        let watching = try Daemon(
            "/usr/bin/script",
            [
                "-qefc",
                "stty cols 80 rows 24; echo $$ >\(number); exec \(Sandbox.program) list --watch 100ms "
                    + "--config \(sandbox.settingsFile)", "/dev/null",
            ],
            log: screen
        )
        func shown() throws -> String { try String(contentsOf: screen, encoding: .utf8) }
        try eventually("the list is empty") { try shown().contains("\u{1b}[HNo uploads in ") }
        _ = try sandbox.create("/files/a.bin")
        try eventually("the upload is listed") { try shown().contains("  partial  ") }
        let process = try #require(
            Int32(String(contentsOfFile: number, encoding: .utf8).dropLast())
        )
        kill(process, SIGINT)
        try eventually("it ends") { !watching.process.isRunning }
        #expect(watching.wait() == 128 + SIGINT)
    }

    @Test(
        "a target's query is shown only if the settings allow it",
        arguments: [false, true]
    )
    func query(shows: Bool) throws {
        let sandbox = try Sandbox(extra: ["log-queries: \(shows)"])
        _ = try sandbox.create("/files/a.bin?token=secret")
        let id = try #require(try listed(sandbox)["upload"] as? String)
        for command in [["list"], ["list", "--json"], ["show", id], ["show", "--json", id]] {
            let shown = try sandbox.spoolgate(command)
            #expect(shown.status == 0)
            #expect(shown.output.contains("/files/a.bin?token=secret") == shows, "\(command)")
            #expect(shown.output.contains("/files/a.bin?\u{2026}") == !shows, "\(command)")
        }
        #expect(sandbox.log.contains("secret") == shows)
    }

    @Test("relative paths start at the working directory, and paths may contain spaces")
    func paths() throws {
        let root = FileManager.default.temporaryDirectory
            .appending(path: "x y ü \(UUID().uuidString.prefix(8))")
        defer { try? FileManager.default.removeItem(at: root) }
        let plain = root.path(percentEncoded: false)
        try FileManager.default.createDirectory(
            at: root.appending(path: "in coming"),
            withIntermediateDirectories: true
        )
        let sandbox = try Sandbox(
            upstream: "\"directory:\(plain)/in coming\"",
            spool: "\"\(plain)/the spool\""
        )
        let resource = try sandbox.create("/files/a.bin")
        #expect(try sandbox.append(resource, Data("content".utf8)).status == 201)
        let files = try FileManager.default.contentsOfDirectory(atPath: "\(plain)/in coming")
        let file = try #require(files.first { !$0.hasSuffix(".json") })
        #expect(
            FileManager.default.contents(atPath: "\(plain)/in coming/\(file)")
                == Data("content".utf8)
        )
        let list = try Command(
            "/bin/sh",
            [
                "-ec",
                "cd \"$0\" && cp \"$2\" their.yaml && exec \"$1\" list --spool './the spool' "
                    + "--config their.yaml",
                plain, Sandbox.program, "\(sandbox.directory.path())/spoolgate.yaml",
            ]
        )
        #expect((list.status, list.errors) == (0, ""))
        #expect(list.output.contains("delivered 201"))
    }
}
