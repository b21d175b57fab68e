// Nodes behind one nginx with the shipped file, each with its own spool; one of three never responds.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("Nodes", .enabled(if: Command.find("nginx") != nil, "nginx is not installed"))
struct NodesTests {
    /// Two nodes behind one nginx, delivering to one directory.
    private struct Scene {
        let one: Sandbox
        /// Its nginx knows both nodes; that of `one` knows only `one`.
        let two: Sandbox

        /// `names` are the nodes' settings; nginx knows them as `name` and n2.
        init(names: [String] = ["n1", "n2"], inNginx name: String = "n1") throws {
            one = try Sandbox(extra: ["node: \(names[0])"])
            let folder = one.directory.path()
            var sockets = ["n1": "\(folder)/nobody.sock", "n3": "\(folder)/nobody.sock"]
            sockets[name] = "\(folder)/spoolgate.sock"
            two = try Sandbox(
                upstream: "directory:\(folder)/delivered",
                extra: ["node: \(names[1])", "events: {to: \(folder)/events.json}"],
                front: .nginxOfNodes(sockets)
            )
        }

        func count(_ resources: [String], of node: String) -> Int {
            resources.count { $0.contains("/upload-resource/\(node)/") }
        }
    }

    @Test("with one node dead uploads continue, and its own uploads finish when it is back")
    func death() throws {
        let scene = try Scene()
        let (_, bytes) = try scene.two.randomFile(300_000)
        let half = bytes.count / 2
        func create() throws -> String {
            let resource = try scene.two.create("/files/x")
            #expect(
                try scene.two.append(resource, bytes.prefix(half), complete: false).status == 204
            )
            return resource
        }
        let before = try (0..<20).map { _ in try create() }
        #expect(scene.count(before, of: "n1") > 0 && scene.count(before, of: "n2") > 0)
        scene.one.kill()
        let meanwhile = try (0..<20).map { _ in try create() }
        #expect(scene.count(meanwhile, of: "n2") == 20)
        let orphan = try #require(before.first { $0.contains("/n1/") })
        #expect(throws: (any Error).self) { try scene.two.ask("HEAD", orphan) }
        #expect(throws: (any Error).self) {
            try scene.two.append(orphan, offset: half, bytes.suffix(from: half))
        }
        try scene.one.startAgain()
        for resource in before + meanwhile {
            // nginx may still treat the node as failed.
            let offset = try eventually("the upload's node responds") {
                try? scene.two.offset(of: resource)
            }
            #expect(offset == half)
            let response = try scene.two.append(resource, offset: half, bytes.suffix(from: half))
            #expect(response.status == 200 || response.status == 201 || response.status == 204)
        }
        let delivered = try scene.one.delivered()
        #expect(delivered.count == 40)
        for file in delivered { #expect(try Data(contentsOf: file) == bytes) }
    }

    @Test("another node's upload is neither passed through nor unknown")
    func misrouted() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let sandbox = try Sandbox(upstream: origin.base, extra: ["node: n1"])
        let resource = try sandbox.create("/files/x")
        #expect(resource.contains("/upload-resource/n1/"))
        let elsewhere = resource.replacingOccurrences(of: "/n1/", with: "/n2/")
        for fields in [[], ["Tus-Resumable: 1.0.0"]] {
            for method in ["PATCH", "HEAD", "DELETE"] {
                #expect(throws: (any Error).self, "\(method) \(fields)") {
                    try sandbox.ask(method, elsewhere, fields, content: Data("x".utf8))
                }
            }
        }
        for (method, path) in [
            ("OPTIONS", elsewhere), ("PUT", elsewhere), ("GET", elsewhere + "/status"),
        ] {
            let response = try sandbox.ask(method, path)
            #expect(response.status == 503 && response["retry-after"] == "5", "\(method) \(path)")
            #expect(response.text.contains("other-node"))
        }
        #expect(try sandbox.ask("HEAD", elsewhere + "x").status == 404)
        #expect(origin.requests.isEmpty)
        // A resource from before the node had a name belongs to this node.
        let old = resource.replacingOccurrences(of: "/n1/", with: "/")
        #expect(try sandbox.offset(of: old) == 0)
    }

    @Test("the partial uploads of one upload are on one node, and its URLs lead there")
    func concatenation() throws {
        let scene = try Scene()
        let tus = ["Tus-Resumable: 1.0.0"]
        let part = tus + ["Upload-Concat: partial", "Upload-Length: 3"]
        let content = ["Content-Type: application/offset+octet-stream"]
        func create(_ sandbox: Sandbox) throws -> String {
            let response = try sandbox.ask(
                "POST",
                "/files/x",
                part + content,
                content: Data("abc".utf8)
            )
            #expect(response.status == 201)
            return String((response["location"] ?? "").drop(upTo: "/files/"))
        }
        let parts = try (0..<6).map { _ in try create(scene.two) }
        #expect([0, 6].contains(scene.count(parts, of: "n1")))
        let node = scene.count(parts, of: "n1") == 6 ? scene.one : scene.two
        func join(_ parts: [String]) throws -> WireClient.Answer {
            let concat = "Upload-Concat: final;\(parts.joined(separator: " "))"
            return try scene.two.ask("POST", "/files/x", tus + [concat], content: Data())
        }
        #expect(try join(parts).status == 201)
        let delivered = try scene.one.delivered()
        #expect(
            try delivered.map { try String(contentsOf: $0, encoding: .utf8) } == [
                String(repeating: "abc", count: 6)
            ]
        )
        // Neither node can join the other's partial uploads.
        let other = node === scene.one ? "n2" : "n1"
        let foreign = parts[0].replacingOccurrences(
            of: "/n\\d/",
            with: "/\(other)/",
            options: .regularExpression
        )
        let response = try join([parts[1], foreign])
        #expect(response.status == 409 && response.text.contains("on another node"))
    }

    @Test("probe reports where nginx sends another node's upload requests")
    func probed() throws {
        func probe(_ scene: Scene) throws -> ProbeTests.Report {
            let url = "http://localhost:\(scene.two.port)/files/x"
            return try ProbeTests.Report(
                Command(
                    Sandbox.program,
                    ["probe", "--json", "--http", "1.1", "--size", "1MiB", url]
                )
            )
        }
        let right = try probe(Scene())
        right.expect("nodes", "ok", ["reach its node"])
        #expect(right.status == 0, "\(right.shown)")
        let wrong = try probe(Scene(names: ["n2", "n3"], inNginx: "n3"))
        wrong.expect("nodes", "fail", ["reach another node", "fastcgi_pass $spoolgate_node;"])
        #expect(wrong.status != 0)
    }

    @Test("log, events, lists and status name the node")
    func named() throws {
        let scene = try Scene()
        while true {
            let resource = try scene.two.create("/files/x")
            if resource.contains("/n2/") { break }
        }
        #expect(
            scene.two.log.contains("msg=\"upload created\" upload=")
                && scene.two.log.contains("node=n2")
        )
        let events = try String(
            contentsOfFile: scene.one.directory.path() + "/events.json",
            encoding: .utf8
        )
        #expect(events.contains("\"node\":\"n2\""))
        #expect(try scene.two.spoolgate("list", "--json").output.contains("\"node\":\"n2\""))
        #expect(try scene.two.spoolgate("status", "--json").output.contains("\"node\":\"n2\""))
        #expect(try scene.two.spoolgate("status").output.contains(", node n2, on "))
    }
}
