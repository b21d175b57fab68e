// PHP-FPM behind nginx, and nginx's own DAV module over https with a private CA.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("Real upstreams", .enabled(if: Command.find("nginx") != nil, "nginx is not installed"))
struct RealUpstreamTests {
    @Test(
        "PHP receives one regular upload, and its status, fields and content reach the client"
    )
    func phpAnswers() throws {
        let upstream = try RealUpstream()
        let sandbox = try Sandbox(upstream: upstream.url)
        let (_, bytes) = try sandbox.randomFile(5 << 20)
        let resource = try sandbox.create(
            "/files/index.php?album=7",
            ["Content-Type: video/mp4", "X-Custom: yes"]
        )
        #expect(try sandbox.append(resource, bytes.prefix(2 << 20), complete: false).status == 204)
        let response = try sandbox.append(resource, offset: 2 << 20, bytes.suffix(from: 2 << 20))
        #expect(response.status == 202)
        #expect(response["x-upstream"] == "php")
        #expect(response["upload-complete"] == "?1")
        let heard = try #require(
            JSONSerialization.jsonObject(with: response.content) as? [String: Any]
        )
        #expect(heard["method"] as? String == "POST")
        #expect(heard["uri"] as? String == "/files/index.php?album=7")
        #expect(heard["length"] as? String == "\(bytes.count)")
        #expect(heard["type"] as? String == "video/mp4")
        #expect(heard["custom"] as? String == "yes")
        #expect(heard["sha1"] as? String == (try RealUpstream.sha1(of: bytes)))
        #expect((heard["markers"] as? [Any])?.isEmpty == true)
        #expect(try upstream.phpCalls() == 1)
        // The same empty final append repeats a lost response.
        let again = try sandbox.append(resource, offset: bytes.count)
        #expect(again.status == 202)
        #expect(again.content == response.content)
        #expect(again["x-upstream"] == "php")
        #expect(try upstream.phpCalls() == 1)
    }

    @Test("an upstream's refusal is the client's response, and ends the upload")
    func upstreamRefuses() throws {
        let upstream = try RealUpstream()
        let sandbox = try Sandbox(upstream: upstream.url)
        let resource = try sandbox.create("/files/index.php?status=422")
        let response = try sandbox.append(resource, Data("x".utf8))
        #expect(response.status == 422)
        #expect(response["upload-complete"] == "?1")
        // tus-js-client would take an offset for success.
        let version = "Upload-Draft-Interop-Version: 6"
        #expect(try sandbox.ask("HEAD", resource, [version]).status == 410)
        let again = try sandbox.append(resource, offset: 1, fields: [version])
        #expect(again.status == 422)
    }

    @Test("a client that does not read its response does not delay other uploads")
    func unreadAnswer() throws {
        let upstream = try RealUpstream()
        let sandbox = try Sandbox(
            upstream: upstream.url,
            routeSettings: ["limits: {min-size: 0}"],
            extra: ["delivery: {maximum-concurrent: 1}"]
        )
        let whole = "Upload-Complete: ?1"
        let idle = try sandbox.open("PUT", "/files/index.php?size=50000000", [whole], length: 1)
        idle.send("x")
        #expect(try idle.readAny(head: true).status == 202)
        let response = try sandbox.ask("PUT", "/files/index.php", [whole], content: Data("y".utf8))
        #expect(response.status == 202)
        withExtendedLifetime(idle) {}
    }

    @Test("an https upstream is verified against its own CA")
    func privateAuthority() throws {
        let upstream = try RealUpstream()
        let sandbox = try Sandbox(
            upstream: upstream.tlsURL,
            routeSettings: ["tls: {ca: \(upstream.authority)}"]
        )
        let (_, bytes) = try sandbox.randomFile(3 << 20)
        let response = try sandbox.ask("PUT", "/files/dav/secret.bin", content: bytes)
        #expect(response.status == 201)
        #expect(try upstream.davFile("secret.bin") == bytes)
    }

    @Test(
        "a wrong CA is refused with a clear error; the upload stays and is delivered once the CA is right"
    )
    func wrongAuthority() throws {
        let upstream = try RealUpstream()
        let sandbox = try Sandbox(
            upstream: upstream.tlsURL,
            routeSettings: ["tls: {ca: \(upstream.strangeAuthority)}"]
        )
        let bytes = Data(repeating: 9, count: 1 << 20)
        let resource = try sandbox.create("/files/dav/later.bin")
        let response = try sandbox.append(resource, bytes)
        #expect(response.status == 502)
        #expect(response["upload-offset"] == "\(bytes.count)")
        #expect(response["upload-complete"] == "?0")
        #expect(sandbox.log.contains("certificate"))
        #expect(try sandbox.spoolgate("list").output.contains("deferred"))
        try sandbox.reload(replacing: upstream.strangeAuthority, with: upstream.authority)
        let retried = try sandbox.append(resource, offset: bytes.count)
        // The upload was created by POST, which DAV refuses.
        #expect([404, 405].contains(retried.status))
        #expect(retried["upload-complete"] == "?1")
    }

    @Test("an upstream that is down costs only time")
    func upstreamDown() throws {
        let port = try FreePort.take(1)[0]
        let sandbox = try Sandbox(upstream: "http://127.0.0.1:\(port)")
        let bytes = Data(repeating: 3, count: 300_000)
        let resource = try sandbox.create("/files/index.php")
        let response = try sandbox.append(resource, bytes)
        #expect(response.status == 502)
        #expect(response["content-type"] == "application/problem+json")
        #expect(try sandbox.offset(of: resource) == bytes.count)
        let upstream = try RealUpstream(port: port)
        let retried = try sandbox.append(resource, offset: bytes.count)
        #expect(retried.status == 202)
        #expect(try upstream.phpCalls() == 1)
    }

    @Test("a response that the upstream aborts is aborted for the client too")
    func brokenAnswer() throws {
        let origin = try LoopbackOrigin { connection in
            _ = try connection.receiveRequest()
            try connection.send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
            )
        }
        let sandbox = try Sandbox(upstream: origin.base)
        for version in ["--http1.1", "--http2"] {
            let response = try sandbox.curl([
                "-k", version, "https://127.0.0.1:\(sandbox.tlsPort)/files/report",
            ])
            // curl's exit codes: 18 partial content, 52 no response, 92 HTTP/2 stream not closed cleanly.
            #expect([18, 52, 92].contains(response.status), "\(version): \(response.status)")
        }
    }

    @Test("requests that are no uploads pass through: ranges, conditions, HEAD, other methods")
    func passesThrough() throws {
        let upstream = try RealUpstream()
        let sandbox = try Sandbox(upstream: upstream.url)
        let (_, bytes) = try sandbox.randomFile(1 << 20)
        try bytes.write(to: upstream.directory.appending(path: "root/files/static.bin"))
        let client = try WireClient(port: sandbox.port)
        let whole = try client.ask("GET", "/files/static.bin")
        #expect(whole.status == 200)
        #expect(whole.content == bytes)
        let tag = try #require(whole["etag"])
        let part = try client.ask("GET", "/files/static.bin", ["Range: bytes=100-199"])
        #expect(part.status == 206)
        #expect(part.content == bytes[100..<200])
        let same = try client.ask("GET", "/files/static.bin", ["If-None-Match: \(tag)"])
        #expect(same.status == 304)
        let head = try client.ask("HEAD", "/files/static.bin")
        #expect(head["content-length"] == "\(bytes.count)")
        #expect(try client.ask("MKCOL", "/files/dav/new/").status == 201)
        #expect(try client.ask("DELETE", "/files/dav/new/").status == 204)
        let options = try client.ask("OPTIONS", "/files/static.bin")
        #expect(options.status == 200)
        #expect(options["upload-limit"]?.contains("max-size=") == true)
        #expect(options["accept-patch"] == "application/partial-upload")
    }
}
