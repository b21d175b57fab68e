// The daemon behind lighttpd, which forwards 104 without a module over HTTP/1.1.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("Uploads through lighttpd")
struct LighttpdTests {
    @Test("an ordinary upload is delivered whole")
    func plainUpload() throws {
        let sandbox = try Sandbox(front: .lighttpd)
        let (_, bytes) = try sandbox.randomFile(20 << 20)
        let response = try sandbox.ask("PUT", "/files/plain.bin", content: bytes)
        #expect(response.status == 201)
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [bytes])
    }

    @Test(
        "a client that sends all content at once resumes at the 104's offset",
        arguments: OptimisticClient.versions
    )
    func resumesFromInterim(version: Int) throws {
        let sandbox = try Sandbox(front: .lighttpd)
        let (_, bytes) = try sandbox.randomFile(30 << 20)
        let client = OptimisticClient(version: version, method: "POST", content: bytes)
        let course = try client.upload(
            to: "/files/film.mp4",
            by: WireCarrier(port: sandbox.port)
        ) { try sandbox.spooledOffset() > 0 }
        #expect(course.interim.status == 104)
        #expect(course.retrieval.status == 204)
        #expect(course.offset > 0 && course.offset < bytes.count)
        #expect(course.final.status == 201)
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [bytes])
    }

    @Test(
        "a careful creation is cut and resumed; the reported offset is the number of received bytes"
    )
    func carefulCreation() throws {
        let sandbox = try Sandbox(front: .lighttpd)
        let bytes = Data((0..<200_000).map { UInt8(truncatingIfNeeded: $0) })
        let resource = try sandbox.create("/files/careful.bin")
        let sender = try sandbox.startAppend(
            resource,
            length: bytes.count,
            sent: bytes.prefix(150_000)
        )
        try eventually("150000 bytes are in the spool") {
            try sandbox.spooledOffset() == 150_000
        }
        sender.cut()
        #expect(try sandbox.offset(of: resource) == 150_000)
        let rest = bytes.suffix(from: 150_000)
        #expect(try sandbox.append(resource, offset: 150_000, rest).status == 201)
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [bytes])
    }

    @Test("content without a length is refused with 411, as the configuration says")
    func lengthRequired() throws {
        let sandbox = try Sandbox(front: .lighttpd)
        let client = try sandbox.open("PUT", "/files/chunked.bin", ["Transfer-Encoding: chunked"])
        client.sendChunk(Data(count: 1000))
        #expect(try client.read().status == 411)
        #expect(try sandbox.ask("POST", "/files/e.bin", ["Upload-Complete: ?0"]).status == 411)
        #expect(try sandbox.delivered().isEmpty)
    }

    @Test("a field with two spellings of its name is refused and affects nothing else")
    func twoSpellings() throws {
        let sandbox = try Sandbox(front: .lighttpd)
        let resource = try sandbox.create("/files/two.bin")
        let refused = try sandbox.append(resource, Data(count: 10), fields: ["Upload_Offset: 5"])
        #expect(refused.status == 400)
        #expect(try sandbox.offset(of: resource) == 0)
    }

    @Test("over HTTP/2 no 104 is sent, and the upload is delivered")
    func withoutInterimOverHTTP2() throws {
        let sandbox = try Sandbox(front: .lighttpd)
        let file = try sandbox.randomFile(3 << 20)
        let response = try sandbox.curl([
            "--http2-prior-knowledge", "-D", "-", "-T", file.url.path(), "-H",
            "Upload-Draft-Interop-Version: 10", "-H", "Upload-Complete: ?1",
            "http://127.0.0.1:\(sandbox.port)/files/h2.bin",
        ])
        #expect(response.output.hasPrefix("HTTP/2 201"), "\(response.output) \(response.errors)")
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [file.bytes])
    }
}
