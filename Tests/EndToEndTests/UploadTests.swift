// The main use: an upload is cut, resumed, and delivered once and byte-identical.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("An upload through nginx to a drop directory")
struct UploadTests {
    @Test("a cut upload is resumed with curl alone and arrives once, byte-identical")
    func cutAndResumedWithCurl() throws {
        let sandbox = try Sandbox()
        let file = try sandbox.randomFile(64 << 20)
        let base = "http://127.0.0.1:\(sandbox.port)"
        let created = try sandbox.curl([
            "-X", "POST", base + "/files/film.mkv", "-H", "Upload-Complete: ?0", "-D", "-",
        ])
        #expect(created.output.hasPrefix("HTTP/1.1 201"))
        let resource = try #require(field("location", in: created.output))
        // The time limit makes curl give up in the middle.
        _ = try Command(
            "/usr/bin/curl",
            [
                "-sS", "--max-time", "2", "--limit-rate", "8M", "-T", file.url.path(), "-X",
                "PATCH", resource, "-H", "Upload-Offset: 0", "-H", "Upload-Complete: ?1", "-H",
                "Content-Type: application/partial-upload",
            ]
        )
        let told = try sandbox.curl(["-I", resource])
        #expect(told.output.hasPrefix("HTTP/1.1 204"))
        let offset = try #require(field("upload-offset", in: told.output).flatMap { Int($0) })
        #expect(offset > 0 && offset < file.bytes.count)
        #expect(field("upload-complete", in: told.output) == "?0")
        let rest = sandbox.directory.appending(path: "rest.bin")
        try file.bytes.suffix(from: offset).write(to: rest)
        let resumed = try sandbox.curl([
            "-T", rest.path(), "-X", "PATCH", resource, "-H", "Upload-Offset: \(offset)", "-H",
            "Upload-Complete: ?1", "-H", "Content-Type: application/partial-upload", "-D", "-",
        ])
        #expect(resumed.output.contains("HTTP/1.1 201"))
        let delivered = try sandbox.delivered()
        #expect(delivered.count == 1)
        #expect(delivered.first?.lastPathComponent.hasSuffix("film.mkv") == true)
        #expect(try delivered.first.map { try Data(contentsOf: $0) } == file.bytes)
    }

    @Test(
        "a chunked message cut inside a chunk never completes; resumed, it is delivered once",
        arguments: [false, true]
    )
    func cutInMidChunk(reset: Bool) throws {
        let sandbox = try Sandbox()
        let (_, bytes) = try sandbox.randomFile(12 << 20)
        let resource = try sandbox.create("/files/a.bin")
        let sender = try sandbox.startAppend(resource, length: nil)
        for part in 0..<8 { sender.sendChunk(bytes[(part << 20)..<((part + 1) << 20)]) }
        // Only half of the 1 MiB chunk is sent.
        sender.send("100000\r\n")
        sender.send(bytes[(8 << 20)..<(8 << 20) + (512 << 10)])
        try eventually("the spool has content") { try sandbox.spooledOffset() > 0 }
        sender.cut(reset: reset)
        let offset = try sandbox.offset(of: resource)
        #expect(offset > 0 && offset <= (8 << 20) + (512 << 10))
        #expect(try sandbox.delivered().isEmpty)
        let rest = try sandbox.startAppend(resource, offset: offset, length: nil)
        rest.sendChunk(bytes.suffix(from: offset))
        rest.send("0\r\n\r\n")
        let response = try rest.read()
        #expect(response.status == 201)
        #expect(response["upload-complete"] == "?1")
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [bytes])
    }

    @Test("a cut over HTTP/2 is not a completion")
    func cutOverHTTP2() throws {
        let sandbox = try Sandbox()
        let file = try sandbox.randomFile(24 << 20)
        let base = "https://127.0.0.1:\(sandbox.tlsPort)"
        let created = try sandbox.curl([
            "-k", "--http2", "-X", "POST", base + "/files/h2.bin", "-H", "Upload-Complete: ?0",
            "-D", "-",
        ])
        #expect(created.output.hasPrefix("HTTP/2 201"))
        let resource = try #require(field("location", in: created.output))
        // Standard input has no length, so HTTP/2 sends no Content-Length.
        let sender = try Daemon(
            "/bin/sh",
            [
                "-c",
                """
                exec curl -k -sS --http2 --limit-rate 6M -X PATCH -T - '\(resource)' \
                -H 'Upload-Offset: 0' -H 'Upload-Complete: ?1' \
                -H 'Content-Type: application/partial-upload' < '\(file.url.path())'
                """,
            ],
            log: sandbox.directory.appending(path: "curl.log")
        )
        let path = String(resource.drop(upTo: "/files/"))
        try eventually("the spool has content") { try sandbox.spooledOffset() > 0 }
        sender.signal(SIGKILL)
        _ = sender.wait()
        let reached = try sandbox.offset(of: path)
        #expect(reached > 0 && reached < file.bytes.count)
        #expect(try sandbox.delivered().isEmpty)
        let rest = sandbox.directory.appending(path: "rest.bin")
        try file.bytes.suffix(from: reached).write(to: rest)
        let resumed = try sandbox.curl([
            "-k", "--http2", "-T", rest.path(), "-X", "PATCH", resource, "-H",
            "Upload-Offset: \(reached)", "-H", "Upload-Complete: ?1", "-H",
            "Content-Type: application/partial-upload", "-D", "-",
        ])
        #expect(resumed.output.hasPrefix("HTTP/2 201"))
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [file.bytes])
    }

    @Test("an ordinary upload of unknown length is delivered whole")
    func plainUploadOfUnknownLength() throws {
        let sandbox = try Sandbox()
        let (_, bytes) = try sandbox.randomFile(3 << 20)
        let client = try sandbox.open("POST", "/files/plain.bin", ["Transfer-Encoding: chunked"])
        client.sendChunk(bytes)
        client.send("0\r\n\r\n")
        #expect(try client.read().status == 201)
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [bytes])
        #expect(try sandbox.spoolgate("list", "--json").output.isEmpty)
    }

    @Test("an ordinary upload that is cut is not delivered and leaves nothing")
    func plainUploadCut() throws {
        let sandbox = try Sandbox()
        let client = try sandbox.open("PUT", "/files/plain.bin", length: 1_000_000)
        client.send(Data(repeating: 7, count: 400_000))
        client.cut()
        #expect(try sandbox.ask("PUT", "/files/b.bin", content: Data("whole".utf8)).status == 201)
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [Data("whole".utf8)])
        #expect(try sandbox.spoolgate("list", "--json").output.isEmpty)
    }

    @Test("an upload below min-size costs no upload resource")
    func smallUpload() throws {
        let sandbox = try Sandbox()
        let fields = ["Upload-Complete: ?1", "Upload-Draft-Interop-Version: 6"]
        let response = try sandbox.ask("POST", "/files/form", fields, content: Data("a=b".utf8))
        #expect(response.status == 201)
        #expect(try sandbox.delivered().count == 1)
        #expect(try sandbox.spoolgate("list", "--json").output.isEmpty)
    }

    @Test("the newest request replaces a stuck one, and no byte is lost")
    func newestRequestWins() throws {
        let sandbox = try Sandbox()
        let resource = try sandbox.create("/files/stuck.bin")
        let stuck = try sandbox.startAppend(
            resource,
            length: 2000,
            sent: Data(repeating: 1, count: 1_000)
        )
        try eventually("1000 bytes are in the spool") {
            try sandbox.spooledOffset() == 1_000
        }
        // The stuck connection stays open.
        let rest = Data(repeating: 2, count: 1_000)
        let response = try sandbox.append(resource, offset: 1000, rest)
        #expect(response.status == 201)
        let expected = Data(repeating: 1, count: 1_000) + rest
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [expected])
        withExtendedLifetime(stuck) {}
    }

    @Test(
        "content cut after its last byte is not reported as complete to a client that would take it for success"
    )
    func cutAfterLastByte() throws {
        let sandbox = try Sandbox()
        let (_, bytes) = try sandbox.randomFile(300_000)
        let version = "Upload-Draft-Interop-Version: 6"
        let resource = try sandbox.create("/files/tail.bin", ["Upload-Length: 300000", version])
        let sender = try sandbox.startAppend(resource, length: nil, fields: [version])
        sender.sendChunk(bytes)
        try eventually("all but the last byte is in the spool") {
            try sandbox.spooledOffset() == 299_999
        }
        // The chunk that ends the content never arrives.
        sender.cut()
        let told = try sandbox.ask("HEAD", resource, [version])
        #expect(told.status == 204)
        #expect(told["upload-offset"] == "299999")
        #expect(told["upload-complete"] == "?0")
        #expect(try sandbox.delivered().isEmpty)
        let response = try sandbox.append(
            resource,
            offset: 299_999,
            bytes.suffix(1),
            fields: [version]
        )
        #expect(response.status == 201)
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [bytes])
    }

    @Test("an offset equal to the length completes nothing: only the client does")
    func wholeButIncomplete() throws {
        let sandbox = try Sandbox()
        let bytes = Data(repeating: 4, count: 300_000)
        let version = "Upload-Draft-Interop-Version: 8"
        let resource = try sandbox.create("/files/tail.bin", ["Upload-Length: 300000", version])
        let part = try sandbox.append(resource, bytes, complete: false, fields: [version])
        #expect(part.status == 204)
        let told = try sandbox.ask("HEAD", resource, [version])
        #expect(told["upload-offset"] == "300000")
        #expect(told["upload-complete"] == "?0")
        #expect(try sandbox.delivered().isEmpty)
        let response = try sandbox.append(resource, offset: 300_000, fields: [version])
        #expect(response.status == 201)
        #expect(response["upload-complete"] == "?1")
        #expect(try sandbox.delivered().count == 1)
    }

    @Test(
        "of versions 5 and 6, whose clients take it for success, it completes the upload",
        arguments: [5, 6]
    )
    func wholeByLength(version: Int) throws {
        let sandbox = try Sandbox()
        let bytes = Data(repeating: 4, count: 300_000)
        let version = "Upload-Draft-Interop-Version: \(version)"
        let resource = try sandbox.create("/files/tail.bin", ["Upload-Length: 300000", version])
        let part = try sandbox.append(resource, bytes, complete: false, fields: [version])
        #expect(part.status == 201)
        #expect(part["upload-complete"] == "?1")
        #expect(part["upload-offset"] == "300000")
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [bytes])
    }

    @Test("without an origin, Location names no host, however many slashes the target has")
    func locationWithoutOrigin() throws {
        let sandbox = try Sandbox(origin: "")
        for (target, start) in [("/files/a", "/files/a/"), ("//files/a", "/.//files/a/")] {
            let response = try sandbox.ask("POST", target, ["Upload-Complete: ?0"], content: Data())
            #expect(response["location"]?.hasPrefix(start) == true, "\(response.fields)")
        }
    }

    private func field(_ name: String, in head: String) -> String? {
        head.split(whereSeparator: \.isNewline).last { $0.lowercased().hasPrefix(name + ":") }
            .map { $0.drop { $0 != ":" }.dropFirst().trimmingCharacters(in: .whitespaces) }
    }
}
