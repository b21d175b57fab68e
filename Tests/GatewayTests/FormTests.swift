// The forms of requests to an upstream, and files handed over by path.

import Foundation
import HTTPTypes
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateRequests
@testable import SpoolgateSettings

@Suite struct FormTests {
    private let creationFields: HTTPFields = [
        .contentType: "image/png", .contentEncoding: "gzip", .contentLanguage: "en",
        .contentDisposition: "attachment; filename=\"a b.png\"", .accept: "text/html",
        .uploadMetadata: "album c3VtbWVy,SOURCE ZXZpbA==,sha-256 eA==,filename eC5naWY=",
    ]

    /// Each part must end properly.
    private func parts(_ request: LoopbackOrigin.Request) throws -> [(
        head: String, content: String
    )] {
        let type = try #require(request.values("Content-Type").first)
        let mark = "multipart/form-data; boundary="
        try #require(type.hasPrefix(mark) && request.values("Content-Type").count == 1)
        let boundary = "--\(type.dropFirst(mark.count))"
        let text = "\r\n" + String(decoding: request.content, as: UTF8.self)
        let pieces = text.components(separatedBy: "\r\n\(boundary)")
        #expect(pieces.first == "" && pieces.last == "--\r\n")
        return try pieces.dropFirst().dropLast().map { piece in
            let end = try #require(piece.range(of: "\r\n\r\n"))
            // CRLF is one `Character`.
            return (String(piece[..<end.lowerBound].dropFirst()), String(piece[end.upperBound...]))
        }
    }

    private func multipartGateway(_ origin: LoopbackOrigin) throws -> GatewayUnderTest {
        try GatewayUnderTest(origin.target) { _, route in
            route.form = .multipart
            route.digest = .sha256
            route.multipart.fileField = "photo"
            route.multipart.fields = [ConstantField(name: "source", value: "gateway")]
            route.multipart.fromFields = [
                CopiedField(name: "language", source: .contentLanguage),
                CopiedField(name: "absent", source: .range),
            ]
        }
    }

    @Test("a form is posted with the file last, and without fields that described the file alone")
    func multipart() throws {
        let origin = try LoopbackOrigin()
        let test = try multipartGateway(origin)
        let location = try #require(
            test.serve(
                .creation(["hel"], complete: false, method: .put, fields: creationFields)
            ).location
        )
        let record = test.serve(.append(location, at: 3, ["lo"]))
        #expect(record.status == 200)
        let request = try #require(origin.requests.first)
        #expect(request.line == "POST /files HTTP/1.1")
        #expect(request.values("Content-Length") == ["\(request.content.count)"])
        #expect(request.values("Accept") == ["text/html"])
        for name in ["Content-Encoding", "Content-Disposition", "Content-Language", "Repr-Digest"] {
            #expect(request.values(name) == [], "\(name)")
        }
        let parts = try parts(request)
        let simple = "Content-Disposition: form-data; name="
        let digest = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
        #expect(
            parts.map { "\($0.head)=\($0.content)" } == [
                "\(simple)\"album\"=summer", "\(simple)\"source\"=gateway",
                "\(simple)\"language\"=en", "\(simple)\"sha-256\"=\(digest)",
                "\(simple)\"content-encoding\"=gzip",
                "\(simple)\"photo\"; filename=\"a b.png\"\r\nContent-Type: image/png=hello",
            ]
        )
    }

    @Test(
        "ordinary uploads of every size are sent as a form too, an empty one as an empty file",
        arguments: [0, 1, 131_072, 131_073, 5_000_000]
    )
    func plain(size: Int) throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target) { $1.form = .multipart }
        let content = (0..<size).map { UInt8(ascii: "a") + UInt8($0 * 7 % 26) }
        let steps = stride(from: 0, to: size, by: 1 << 20).map {
            ScriptedExchange.Step.bytes(Array(content[$0...].prefix(1 << 20)))
        }
        let record = test.serve(ScriptedExchange(.put, "/in/n%C3%A4me.bin?x", [:], steps))
        #expect(record.status == 200)
        let request = try #require(origin.requests.first)
        #expect(request.line == "POST /in/n%C3%A4me.bin?x HTTP/1.1")
        let parts = try parts(request)
        #expect(parts.count == 1)
        #expect(
            parts[0].head == "Content-Disposition: form-data; name=\"file\"; "
                + "filename=\"näme.bin\"\r\nContent-Type: application/octet-stream"
        )
        #expect(parts[0].content == String(decoding: content, as: UTF8.self))
    }

    @Test("two uploads never share a boundary")
    func boundary() throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target) { $1.form = .multipart }
        for _ in 0..<2 {
            test.serve(ScriptedExchange(.put, "/x", creationFields, ["hello"]))
        }
        let requests = origin.requests
        #expect(Set(requests.flatMap { $0.values("Content-Type") }).count == 2)
    }

    @Test(
        "an existing form is sent unchanged if the upstream expects forms",
        arguments: ["Multipart/Form-Data; boundary=x", "application/x-www-form-urlencoded"]
    )
    func already(type: String) throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target) { $1.form = .multipart }
        test.serve(ScriptedExchange(.put, "/x", [.contentType: type], ["a=b"]))
        let request = try #require(origin.requests.first)
        #expect(request.line == "PUT /x HTTP/1.1")
        #expect(request.values("Content-Type") == [type])
        #expect(request.content == Array("a=b".utf8))
    }

    @Test("a PUT that is sent as a form is not repeated after an unknown outcome")
    func repeatable() throws {
        let origin = try LoopbackOrigin { connection in _ = try connection.receiveRequest() }
        for form in [Form.body, .multipart] {
            let test = try GatewayUnderTest(origin.target) { $1.form = form }
            let record = test.serve(.creation(method: .put))
            let location = try #require(record.location)
            #expect(try test.queue(of: location) == (form == .body ? .deferred : .hold))
        }
    }
}
