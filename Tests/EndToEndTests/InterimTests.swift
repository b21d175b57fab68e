// Interim responses through nginx's module: a client receives its Location, or a refusal, before it sends.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("Interim responses through nginx with the module")
struct InterimTests {
    // Long because 100 MB must be more than all buffers hold, in every version.
    @Test(
        "a client that sends all content at once resumes at the 104's offset, over HTTP/1.1 and 2",
        arguments: Portion.ofThisRun.taken(from: OptimisticClient.versions, of: 2),
        ["HTTP/1.1", "HTTP/2"]
    )
    func resumesFromInterim(version: Int, protocolName: String) throws {
        let sandbox = try Sandbox(front: .nginxWithModule)
        let (_, bytes) = try sandbox.randomFile(100 << 20)
        let client = OptimisticClient(
            version: version,
            method: version.isMultiple(of: 2) ? "PUT" : "POST",
            content: bytes
        )
        let carrier: any Carrier =
            protocolName == "HTTP/2"
            ? CurlCarrier(
                origin: "https://127.0.0.1:\(sandbox.tlsPort)",
                directory: sandbox.directory
            ) : WireCarrier(port: sandbox.port)
        let course = try client.upload(to: "/files/film.mp4", by: carrier) {
            try sandbox.spooledOffset() > 0
        }
        #expect(course.interim.status == 104)
        #expect(course.interim["upload-draft-interop-version"] == "\(version)")
        #expect(course.retrieval.status == 204)
        #expect(course.offset > 0 && course.offset < bytes.count)
        let name = version == 3 ? "upload-incomplete" : "upload-complete"
        #expect(course.retrieval[name] == (version == 3 ? "?1" : "?0"))
        #expect(course.final.status == 201)
        #expect(course.final[name] == (version == 3 ? "?0" : "?1"))
        #expect(course.final["upload-offset"] == "\(bytes.count)")
        let delivered = try sandbox.delivered()
        #expect(delivered.count == 1)
        #expect(try delivered.first.map { try Data(contentsOf: $0) == bytes } == true)
        let record = try delivered.first.map {
            try String(contentsOf: $0.appendingPathExtension("json"), encoding: .utf8)
        }
        #expect(record?.contains("\"content-type\":\"video/mp4\"") == true, "\(record ?? "")")
    }

    @Test(
        "a client that only sends is stopped after its append was refused, and receives the response"
    )
    func refusal() throws {
        let sandbox = try Sandbox(front: .nginxWithModule)
        let resource = try sandbox.create("/files/film.mp4")
        let client = try sandbox.startAppend(resource, offset: 5, length: 100 << 20)
        let piece = Data(repeating: 7, count: 1 << 16)
        var sent = 0
        while sent < 100 << 20, client.send(piece) { sent += piece.count }
        #expect(sent < 64 << 20)
        let response = try client.readAny()
        #expect(response.status == 409)
        #expect(response["connection"] == "close")
        #expect(try sandbox.offset(of: resource) == 0)
        let (file, _) = try sandbox.randomFile(100 << 20)
        let said = try sandbox.curl(
            [
                "-k", "--http2", "-X", "PATCH", "-H", "Upload-Offset: 5",
                "-H", "Upload-Complete: ?1", "-H", "Content-Type: application/partial-upload",
                "--data-binary",
                "@\(file.path())", "-o", "/dev/null", "-w", "%{http_code} %{size_upload}",
                "https://127.0.0.1:\(sandbox.tlsPort)\(resource)",
            ]
        )
        let words = said.output.split(separator: " ")
        #expect(words.first == "409", "\(said.output)\(said.errors)")
        #expect(words.last.flatMap { Int($0) }.map { $0 < 64 << 20 } == true, "\(said.output)")
    }

    @Test("the 104 arrives before any content is sent")
    func beforeContent() throws {
        let sandbox = try Sandbox(front: .nginxWithModule)
        let (_, bytes) = try sandbox.randomFile(1 << 20)
        let client = try sandbox.open("PUT", "/files/a.bin", Self.creation, length: bytes.count)
        let interim = try client.readAny()
        #expect(interim.status == 104)
        #expect(try sandbox.spooledOffset() == 0)
        let location = try #require(interim["location"])
        #expect(
            location.hasPrefix(
                "http://127.0.0.1:\(sandbox.port)/files/a.bin/upload-resource/"
            )
        )
        client.send(bytes)
        #expect(try client.read().status == 201)
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [bytes])
    }

    @Test("the 104 arrives before any content is sent over HTTP/2")
    func beforeContentOverHTTP2() throws {
        let sandbox = try Sandbox(front: .nginxWithModule)
        let (_, bytes) = try sandbox.randomFile(1 << 20)
        let pipe = sandbox.directory.appending(path: "pipe").path()
        let head = sandbox.directory.appending(path: "head")
        guard mkfifo(pipe, 0o600) == 0 else { throw WireClient.Broken(description: "mkfifo") }
        // No time limit, because curl would then wait only on the pipe.
        let curl = try Daemon(
            "/bin/sh",
            [
                "-c",
                """
                exec curl -k -sS --http2 -X PUT -T . -D '\(head.path())' \
                -H 'Upload-Draft-Interop-Version: 10' -H 'Upload-Complete: ?1' \
                https://127.0.0.1:\(sandbox.tlsPort)/files/a.bin < '\(pipe)'
                """,
            ],
            log: sandbox.directory.appending(path: "curl.log")
        )
        let content = try FileHandle(forWritingTo: URL(filePath: pipe))
        let carrier = CurlCarrier(origin: "", directory: sandbox.directory)
        let interim = try eventually("an interim response") { try carrier.responses(head).first }
        #expect(interim.status == 104)
        #expect(interim["location"] != nil)
        #expect(try sandbox.spooledOffset() == 0)
        try content.write(contentsOf: bytes)
        try content.close()
        #expect(curl.wait() == 0)
        #expect(try carrier.responses(head).last?.status == 201)
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [bytes])
    }

    @Test("a client that expects 100 is refused without one")
    func refusedBeforeContent() throws {
        let sandbox = try Sandbox(
            routeSettings: ["limits: {max-size: 1MiB}"],
            front: .nginxWithModule
        )
        let resource = try sandbox.create("/files/early.bin")
        let length = "Content-Length: 50000000"
        let cases: [(String, String, [String], Int)] = [
            (
                "PATCH", resource,
                [
                    "Upload-Offset: 77", "Upload-Complete: ?1",
                    "Content-Type: application/partial-upload",
                ], 409
            ),
            ("PUT", "/files/large.bin", Self.creation, 413),
            ("PUT", "/files/plain.bin", [], 413),
        ]
        for (method, target, fields, status) in cases {
            let client = try sandbox.open(
                method,
                target,
                fields + [length, "Expect: 100-continue"]
            )
            #expect(try client.readAny().status == status, "\(method) \(target)")
        }
    }

    @Test("a client that expects 100 receives 104, then 100 once, then the response")
    func askedAndAccepted() throws {
        let sandbox = try Sandbox(front: .nginxWithModule)
        let bytes = Data(repeating: 8, count: 300_000)
        let expectation = ["Content-Length: \(bytes.count)", "Expect: 100-continue"]
        for (fields, statuses) in [(Self.creation, [104, 100, 201]), ([], [100, 201])] {
            let client = try sandbox.open("PUT", "/files/asked.bin", fields + expectation)
            for status in statuses.dropLast() { #expect(try client.readAny().status == status) }
            client.send(bytes)
            #expect(try client.readAny().status == statuses.last)
        }
        let delivered = try sandbox.delivered().map { try Data(contentsOf: $0) }
        #expect(delivered == [bytes, bytes])
    }

    @Test("the daemon dies during an upload: no final response, and the 104's Location resumes")
    func daemonDies() throws {
        let sandbox = try Sandbox(front: .nginxWithModule)
        let (_, bytes) = try sandbox.randomFile(8 << 20)
        let client = try sandbox.open("PUT", "/files/a.bin", Self.creation, length: bytes.count)
        let location = try #require(try client.readAny()["location"])
        client.send(bytes.prefix(2 << 20))
        try eventually("content has arrived") { try sandbox.spooledOffset() > 0 }
        try sandbox.crash()
        #expect(throws: WireClient.Broken.self) { try client.readAny() }
        let resource = String(location.drop(upTo: "/files/"))
        let offset = try sandbox.offset(of: resource)
        #expect(offset > 0 && offset <= 2 << 20)
        let rest = bytes.suffix(from: offset)
        #expect(try sandbox.append(resource, offset: offset, rest).status == 201)
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [bytes])
    }

    @Test("no 104 is sent over HTTP/1.0, without an interop version or with an unknown one")
    func noneForOthers() throws {
        let sandbox = try Sandbox(front: .nginxWithModule)
        let bytes = Data(repeating: 8, count: 300_000)
        for version in [[], ["Upload-Draft-Interop-Version: 99"]] {
            let client = try sandbox.open(
                "PUT",
                "/files/other.bin",
                version + ["Upload-Complete: ?1"],
                length: bytes.count
            )
            client.send(bytes)
            #expect(try client.readAny().status == 201)
        }
        let old = try WireClient(port: sandbox.port)
        let fields = Self.creation + ["Content-Length: \(bytes.count)", "Host: 127.0.0.1"]
        old.send("PUT /files/old.bin HTTP/1.0\r\n\(fields.joined(separator: "\r\n"))\r\n\r\n")
        old.send(bytes)
        #expect(try old.readAny().status == 201)
    }

    @Test("stock nginx passes on no interim response of the gateway, and every request works")
    func stockNginx() throws {
        let sandbox = try Sandbox()
        let bytes = Data(repeating: 8, count: 300_000)
        let length = "Content-Length: \(bytes.count)"
        let client = try sandbox.open("PUT", "/files/a.bin", Self.creation + [length])
        client.send(bytes)
        #expect(try client.readAny().status == 201)
        let asking = try sandbox.open(
            "PUT",
            "/files/b.bin",
            Self.creation + [length, "Expect: 100-continue"]
        )
        // Sent by nginx itself.
        #expect(try asking.readAny().status == 100)
        asking.send(bytes)
        #expect(try asking.readAny().status == 201)
        #expect(try sandbox.delivered().count == 2)
    }

    private static let creation = ["Upload-Draft-Interop-Version: 10", "Upload-Complete: ?1"]
}
