// Raw begin and parameter records: NUL bytes, false lengths, and records of other requests in between.

import Foundation
import HTTPTypes
import SpoolgateExchange
import SpoolgateFastCGIFront
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import Testing

@Suite struct RequestBeginningTests {
    private func server() throws -> TestServer {
        try TestServer { exchange in
            switch exchange.head {
            case .failure(let refusal): TestServer.reply(exchange, refusal.response)
            case .success:
                TestServer.reply(exchange, 200, "[\(exchange.context.owner?.text ?? "-")]")
            }
        }
    }

    private func response(_ more: [(String, String)]) throws -> Answer {
        let server = try server()
        defer { server.stop() }
        return try server.exchange(Record.head(parameters(length: "0", more)))
    }

    @Test("an owner with a NUL is not the owner before it")
    func owner() throws {
        #expect(try response([("SPOOLGATE_OWNER", "alice")]).content == "[alice]")
        for owner in ["alice\0x", "alice\0", "\0alice", "\0"] {
            #expect(
                try response([("SPOOLGATE_OWNER", owner)]).status == 400,
                "\(owner.debugDescription)"
            )
        }
    }

    @Test(
        "no parameter ends at a NUL",
        arguments: [
            "SPOOLGATE_ROUTE", "REQUEST_URI", "REQUEST_METHOD", "CONTENT_LENGTH", "REMOTE_ADDR",
            "REQUEST_SCHEME", "HTTP_X_A", "CONTENT_TYPE", "HTTP_UPLOAD_OFFSET",
        ]
    )
    func values(name: String) throws {
        let sound = ["REQUEST_URI": "/a", "REQUEST_METHOD": "PUT"][name] ?? "5"
        #expect(try response([(name, sound + "\0x")]).status == 400)
    }

    @Test("a NUL in a field's name does not end it")
    func name() throws { #expect(try response([("HTTP_X\0Y", "1")]).status == 400) }

    @Test(
        "a length beyond the data ends the connection, not the process",
        arguments: [
            [0x01, 0xFF, 0xFF, 0xFF, 0xFF], [0xFF, 0xFF, 0xFF, 0xFF, 0x01], [0xFF], [0x05, 0x01],
            // The name is complete and the value is missing.
            [0x01, 0x05, 0x41], [0x01, 0xFF, 0xFF, 0xFF, 0xFF, 0x41],
        ]
            as [[UInt8]]
    )
    func lengths(_ lie: [UInt8]) throws {
        let server = try server()
        defer { server.stop() }
        let all = Record.pairs(parameters(length: "0")) + lie
        let response = try server.exchange(Record.begin() + Record.stream(.params, all))
        #expect(response.isClosed && response.status == nil)
        #expect(eventually { server.events == [.noRequest] })
        #expect(try server.exchange(Record.head(parameters(length: "0"))).status == 200)
    }

    @Test("too many parameters are refused without using memory")
    func tooMany() throws {
        let large = String(repeating: "a", count: 60_000)
        // Fields have a limit of their own; other parameters have only this one.
        for name in ["HTTP_X", "X"] {
            let many = (0..<20).map { ("\(name)_\($0)", large) }
            #expect(try response(many).status == 431)
        }
    }

    @Test("a second request on the connection is refused, and its records are not read")
    func second() throws {
        let server = try server()
        defer { server.stop() }
        let begin = Record.bytes(.beginRequest, [0, 1, 0, 0, 0, 0, 0, 0], id: 2)
        let other = Record.bytes(.params, Record.pairs([("SPOOLGATE_OWNER", "eve")]), id: 2)
        let own = Record.pairs(parameters(length: "0", [("SPOOLGATE_OWNER", "alice")]))
        let response = try server.exchange(
            Record.begin() + begin + other + Record.stream(.params, own, size: 9, padding: 3)
        )
        #expect(response.types.first == RecordType.endRequest.rawValue)
        #expect(response.content == "[alice]")
    }

    @Test(
        "the response has the number of its request",
        arguments: [2, 255, 256, 65_535] as [UInt16]
    )
    func number(id: UInt16) throws {
        let server = try TestServer()
        defer { server.stop() }
        let client = try server.client()
        client.send(Record.bytes(.beginRequest, [0, 1, 0, 0, 0, 0, 0, 0], id: id))
        client.send(Record.bytes(.params, Record.pairs(parameters(length: "2")), id: id))
        client.send(Record.bytes(.params, id: id) + Record.bytes(.stdin, [1, 2], id: id))
        client.send(Record.bytes(.stdin, id: id))
        let response = client.response()
        #expect(response.content == Received.text([1, 2]))
        #expect(response.endStatus == 0)
        #expect(client.numbers == [id])
    }
}
