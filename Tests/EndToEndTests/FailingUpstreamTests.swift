// Reports about an unreachable application, and one whose web server responds instead.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("An upstream that accepts nothing")
struct FailingUpstreamTests {
    private static let prefix = "/-/spoolgate/"

    private func send(_ sandbox: Sandbox, _ target: String, from address: String) throws -> String {
        try sandbox.curl([
            "--interface", address, "-o", "/dev/null", "-w", "%{http_code}", "--data-binary",
            "hello",
            "http://127.0.0.1:\(sandbox.port)\(target)",
        ]).output
    }

    private func expectFailing(_ sandbox: Sandbox, _ words: String) throws {
        let check = try sandbox.spoolgate("status", "--check")
        #expect(check.status == 1, "\(check.output)")
        #expect(check.output.hasPrefix("WARNING: "))
        #expect(check.output.contains("route default is failing: 5 deliveries failed in "))
        #expect(check.output.contains(words), "\(check.output)")
        let json = try sandbox.spoolgate("status", "--json").output
        #expect(json.contains("\"failing\":[{\"route\":\"default\""))
        #expect(try sandbox.spoolgate("status").output.contains("\nFailing (1)\n"))
        let page = try sandbox.ask("GET", Self.prefix).text
        #expect(page.contains("<li class=\"failing\">"))
        #expect(page.contains(words))
        let metrics = try sandbox.ask("GET", Self.prefix + "metrics").text
        #expect(metrics.contains("\nspoolgate_route_failing{route=\"default\"} 1\n"))
        #expect(metrics.contains("\nspoolgate_ready 1\n"))
        try Promtool.check("metrics", metrics)
        let ready = try sandbox.ask("GET", Self.prefix + "ready")
        #expect(ready.status == 200)
        #expect(ready.text.contains("\"deliveries\":\"ok (failing: default)\""))
    }

    @Test("PHP-FPM that is down behind its own nginx is a concern until an upload succeeds")
    func ofPHP() throws {
        let upstream = try RealUpstream()
        let sandbox = try Sandbox(upstream: upstream.url, front: .nginxWithAdmin)
        #expect(try send(sandbox, "/files/index.php", from: "127.0.0.1") == "202")
        upstream.stopPHP()
        for number in 1...5 {
            #expect(try sandbox.spoolgate("status", "--check").status == 0, "before \(number)")
            let address = "127.0.0.\(1 + number % 2)"
            #expect(try send(sandbox, "/files/index.php", from: address) == "502")
        }
        try expectFailing(sandbox, "the upstream responded with 502")
        // The application's nginx responds, which does not show that PHP works.
        #expect(try send(sandbox, "/files/nothing", from: "127.0.0.1") == "404")
        try expectFailing(sandbox, upstream.url)
        try upstream.restartPHP()
        #expect(try send(sandbox, "/files/index.php", from: "127.0.0.1") == "202")
        let check = try sandbox.spoolgate("status", "--check")
        #expect(check.status == 0, "\(check.output)")
    }

    @Test("so is an unreachable application, also for resumable uploads")
    func notReached() throws {
        let socket = "/tmp/failing-\(UUID().uuidString.prefix(13)).sock"
        let sandbox = try Sandbox(
            upstream: "unix:\(socket)",
            routeSettings: ["limits: {min-size: 0}"],
            front: .nginxWithAdmin
        )
        let resource = try sandbox.create("/files/a")
        #expect(try sandbox.append(resource, Data("hello".utf8)).status == 502)
        for number in 2...5 {
            let address = "127.0.0.\(1 + number % 2)"
            #expect(try send(sandbox, "/files/a", from: address) == "502")
        }
        try expectFailing(sandbox, "none reached the upstream")
        let origin = try LoopbackOrigin(socketPath: socket) { connection in
            while try connection.receiveRequest() != nil { try connection.response("201 Created") }
        }
        #expect(try sandbox.append(resource, offset: 5).status == 201)
        #expect(try sandbox.spoolgate("status", "--check").status == 0)
        withExtendedLifetime(origin) {}
    }
}
