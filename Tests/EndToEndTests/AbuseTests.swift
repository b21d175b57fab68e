// Malformed and hostile requests get a 4xx, and none crashes the daemon or damages another upload.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("Foreign and malformed requests")
struct AbuseTests {
    @Test("every malformed request gets a 4xx with a problem document and affects nothing else")
    func malformedThings() throws {
        let sandbox = try Sandbox(routeSettings: ["limits: {max-size: 1MiB}"])
        let resource = try sandbox.create("/files/victim.bin", ["Upload-Length: 20"])
        #expect(
            try sandbox.append(resource, Data("0123456789".utf8), complete: false)
                .status == 204
        )
        let type = "Content-Type: application/partial-upload"
        let partial = ["Upload-Complete: ?0", type]
        let one = Data("x".utf8)
        let appends: [(fields: [String], content: Data, statuses: ClosedRange<Int>)] = [
            (["Upload-Offset: 3"] + partial, one, 409...409),
            (["Upload-Offset: -3"] + partial, one, 400...400),
            (["Upload-Offset: abc"] + partial, one, 400...400),
            (["Upload-Offset: 99999999999999999999"] + partial, one, 400...400),
            (["Upload-Offset: 10", type, "Upload-Draft-Interop-Version: 8"], one, 400...400),
            (["Upload-Offset: 10", "Upload-Offset: 10"] + partial, one, 400...400),
            (["Upload-Offset: 10", "Upload-Complete: ?0"], one, 400...415),
            (["Upload-Offset: 10", "Upload-Complete: ?1", type], one, 400...400),
            (["Upload-Offset: 10", "Upload-Length: 30"] + partial, one, 400...400),
            (["Upload-Offset: 10"] + partial, Data(count: 11), 400...400),
        ]
        let base = resource.dropLast(26)
        let completing = "Upload-Complete: ?1"
        let others: [(String, String, [String], Data?, ClosedRange<Int>)] = [
            ("PUT", resource, [], one, 405...405),
            ("HEAD", base + "../../../etc/passwd", [], nil, 400...404),
            ("GET", base + "%2e%2e%2fetc%2fpasswd", [], nil, 400...400),
            ("DELETE", base + "AAAAAAAAAAAAAAAAAAAAAAAAAA", [], nil, 404...404),
            (
                "PATCH", base + "00000000000000000000000000",
                ["Upload-Offset: 0", completing, type], one, 404...404
            ),
            (
                "POST", "/files/big", ["Upload-Complete: ?0", "Upload-Length: 2000000"], Data(),
                413...413
            ),
            ("PUT", "/files/big", [], Data(count: 2_000_000), 413...413),
            (
                "POST", "/files/x", [completing, "Upload-Length: 5"], Data(count: 200_000),
                400...400
            ),
        ]
        let cases = appends.map { ("PATCH", resource, $0, $1, $2) } + others
        for (method, target, fields, content, statuses) in cases {
            let response = try sandbox.ask(method, target, fields, content: content)
            #expect(statuses.contains(response.status), "\(method) \(target) \(fields)")
            if method != "HEAD" {
                #expect(
                    response["content-type"] == "application/problem+json"
                        || target.contains(".."),
                    "\(method) \(target) \(fields)"
                )
            }
        }
        let mismatch = try sandbox.append(resource, offset: 3, Data("x".utf8), complete: false)
        #expect(mismatch["upload-offset"] == "10")
        #expect(try sandbox.offset(of: resource) == 10)
        let rest = try sandbox.append(resource, offset: 10, Data("9876543210".utf8))
        #expect(rest.status == 201)
    }

    @Test("content beyond the length, with no Content-Length, is refused")
    func overrun() throws {
        let sandbox = try Sandbox()
        let resource = try sandbox.create("/files/over.bin", ["Upload-Length: 10"])
        let client = try sandbox.startAppend(resource, length: nil)
        client.sendChunk(Data(count: 5))
        // Once content is in the spool, nginx cannot know the length and announce it in advance.
        try eventually("a part is in the spool") { try sandbox.spooledOffset() == 5 }
        client.sendChunk(Data(count: 50))
        client.send("0\r\n\r\n")
        #expect(try client.read().status == 400)
        #expect(try sandbox.delivered().isEmpty)
        #expect(try sandbox.ask("HEAD", resource).status == 404)
    }

    @Test("an upload of unknown length stops at max-size")
    func endlessContent() throws {
        let sandbox = try Sandbox(routeSettings: ["limits: {max-size: 1MiB}"])
        let client = try sandbox.open("POST", "/files/endless", ["Transfer-Encoding: chunked"])
        for _ in 0..<40 { client.sendChunk(Data(count: 64 << 10)) }
        #expect(try client.read().status == 413)
        #expect(try sandbox.delivered().isEmpty)
    }

    @Test(
        "an early refusal reaches a client that is still sending",
        arguments: [Front.nginx, .lighttpd]
    )
    func earlyRefusal(front: Front) throws {
        let sandbox = try Sandbox(front: front)
        let resource = try sandbox.create("/files/early.bin")
        let client = try sandbox.startAppend(resource, offset: 77, length: 50_000_000)
        for _ in 0..<4 where client.send(Data(count: 1 << 20)) {}
        let response = try client.read()
        #expect(response.status == 409)
        #expect(response["upload-offset"] == "0")
    }

    @Test("a storm of malformed requests leaves memory and descriptor counts flat")
    func storm() throws {
        let sandbox = try Sandbox()
        func wave() throws {
            for number in 0..<150 {
                let client = try WireClient(port: sandbox.port)
                switch number % 5 {
                case 0:
                    let field = "X-Large: " + String(repeating: "a", count: 100_000)
                    client.sendHead("GET", "/files/x", [field])
                case 1:
                    client.sendHead("GET", "/files/x", (0..<10_000).map { "X-\($0): y" })
                case 2: client.send("GET /files/\0x HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n")
                case 3:
                    let fields = [
                        "Upload-Offset: 1e9", "Upload-Complete: yes", "Content-Length: 3",
                    ]
                    client.sendHead("PATCH", "/files/upload-resource/..", fields)
                    client.send("abc")
                default:
                    let fields = ["Upload-Complete: ?1", "Content-Length: 9000000"]
                    client.sendHead("POST", "/files/x", fields)
                    client.send(Data(count: 200_000))
                    client.cut(reset: true)
                    continue
                }
                let response = try? client.read()
                #expect(response.map { (400..<500).contains($0.status) } ?? true)
            }
        }
        try wave()
        let before = sandbox.daemon.footprint()
        for _ in 0..<4 { try wave() }
        try eventually("descriptors are closed") {
            sandbox.daemon.footprint().descriptors <= before.descriptors + 8
        }
        // The sanitizers keep memory for each ended thread.
        if ProcessInfo.processInfo.environment["SPOOLGATE_SANITIZER"] == nil {
            #expect(sandbox.daemon.footprint().rss < before.rss + 16 * 1024)
        }
        #expect(sandbox.daemon.process.isRunning)
        #expect(try sandbox.ask("PUT", "/files/ok", content: Data("x".utf8)).status == 201)
    }
}
