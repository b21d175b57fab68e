// A daemon with fewer descriptors than its clients need.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("Few descriptors", .enabled(if: Command.find("nginx") != nil, "nginx is not installed"))
struct DescriptorTests {
    private static let limit = 512
    private static let victim = "127.0.0.2"

    /// Starts up to `count` slow uploads from different addresses.
    private func slowUploads(_ count: Int, _ sandbox: Sandbox) throws -> [WireClient] {
        try (0..<count).map { number in
            let source = "127.1.\(number / 250).\(number % 250 + 1)"
            let client = try WireClient(port: sandbox.port, from: source)
            client.sendHead(
                "POST",
                "/files/slow\(number)",
                ["Upload-Complete: ?1", "Content-Length: 200000"]
            )
            client.send("x")
            return client
        }
    }

    @Test("more slow uploads than descriptors still allow offset requests, and no data is lost")
    func slow() throws {
        let sandbox = try Sandbox(
            extra: ["threads: {maximum: 2000}", "delivery: {maximum-concurrent: 2}"],
            launcher: [
                Command.find("sh") ?? "sh", "-c",
                "ulimit -n \(Self.limit) && exec \"$0\" \"$@\"",
            ]
        )
        let warning = try #require(
            sandbox.log.firstMatch(
                of: /msg="threads.maximum lowered" .*threads=(\d+)/
            )
        )
        #expect(sandbox.log.contains("descriptors=\(Self.limit)"))
        let maximum = try #require(Int(warning.1))
        let resource = try sandbox.create("/files/victim", ["Upload-Length: 4"])
        #expect(try sandbox.append(resource, Data("ab".utf8), complete: false).status == 204)
        let before = sandbox.daemon.footprint()

        let clients = try slowUploads(Self.limit + 88, sandbox)
        try eventually("every upload above the limit is refused") {
            clients.count { !$0.isReadable } == maximum
        }
        for _ in 0..<20 {
            let (response, seconds) = try Parallel.timed {
                try WireClient(port: sandbox.port, from: Self.victim).ask("HEAD", resource)
            }
            #expect(response.status == 204)
            #expect(response["upload-offset"] == "2")
            #expect(seconds < 5)
        }
        #expect(sandbox.daemon.footprint().descriptors < Self.limit)
        var whole = 0
        for client in clients {
            if client.isReadable {
                let response = try client.read()
                #expect(response.status == 503)
                #expect(response["retry-after"] != nil)
            } else {
                client.send(Data(repeating: UInt8(ascii: "x"), count: 199_999))
                #expect(try client.read().status == 201)
                whole += 1
            }
        }
        #expect(whole == maximum)
        #expect(try sandbox.append(resource, offset: 2, Data("cd".utf8)).status == 201)
        let delivered = try sandbox.delivered()
        #expect(delivered.count == maximum + 1)
        #expect(!sandbox.log.contains("FastCGI listener failed"))
        #expect(!sandbox.log.contains("level=error"))
        try eventually("descriptors are closed") {
            sandbox.daemon.footprint().descriptors <= before.descriptors
        }
    }
}
