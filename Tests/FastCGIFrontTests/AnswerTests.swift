// Responses as the web server receives them.

import Foundation
import HTTPTypes
import SpoolgateExchange
import SpoolgateFastCGIFront
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

/// Tests that use sockets.
///
/// They count descriptors and threads, so they run one at a time.
@Suite(.serialized) struct FrontTests {}

extension FrontTests {
    @Suite struct AnswerTests {
        @Test("Location precedes Status, lengths are exact, and invalid fields are left out")
        func head() throws {
            let server = try TestServer { exchange in
                var fields: HTTPFields = [.contentType: "a/b", .location: "/x"]
                fields.append(HTTPField(name: .contentLength, value: "99"))
                for name in ["Status", "Transfer-Encoding"] {
                    guard let name = HTTPField.Name(name) else { continue }
                    fields.append(HTTPField(name: name, value: "500"))
                }
                TestServer.reply(
                    exchange,
                    Response(ResponseHead(status: .created, fields: fields), content: [65, 66])
                )
            }
            defer { server.stop() }
            let response = try server.exchange(Record.head(parameters(length: "0")))
            #expect(
                response.text
                    == "Location: /x\r\nStatus: 201 Created\r\nContent-Type: a/b\r\n"
                    + "Content-Length: 2\r\n\r\nAB"
            )
            #expect(response.endStatus == 0)
        }

        @Test(
            "a status without a reason phrase gets one, since nginx removes a space at the end",
            arguments: [
                (201, "", "201 Created"), (207, "", "207 Multi-Status"), (299, "", "299 Unknown"),
                (999, "", "999 Unknown"), (201, "\u{1}", "201 Created"), (201, "  ", "201 Created"),
                (201, "Made", "201 Made"),
                (422, "", "422 Unprocessable Content"), (508, "", "508 Loop Detected"),
            ]
        )
        func phrase(code: Int, phrase: String, line: String) throws {
            let server = try TestServer { exchange in
                let status = HTTPResponse.Status(code: code, reasonPhrase: phrase)
                TestServer.reply(exchange, Response(ResponseHead(status: status), content: [65]))
            }
            defer { server.stop() }
            let response = try server.exchange(Record.head(parameters(length: "0")))
            #expect(response.text.hasPrefix("Status: \(line)\r\n"))
        }

        @Test(
            "no content is sent with HEAD, 204 and 304",
            arguments: [
                ("HEAD", 200, "Content-Length: 2"), ("GET", 204, nil),
                ("GET", 304, "Content-Length: 2"),
            ] as [(String, Int, String?)]
        )
        func noContent(_ method: String, _ status: Int, _ length: String?) throws {
            let server = try TestServer { TestServer.reply($0, status, "AB") }
            defer { server.stop() }
            let response = try server.exchange(Record.head(parameters(method, length: "0")))
            #expect(response.status == status)
            #expect(response.content == "")
            let found = response.head.components(separatedBy: "\r\n")
                .first { $0.hasPrefix("Content-Length") }
            #expect(found == length)
        }

        @Test("a large response arrives whole")
        func large() throws {
            let content = [UInt8](repeating: 0x61, count: 3_000_000)
            let server = try TestServer {
                TestServer.reply($0, Response(ResponseHead(status: .ok), content: content))
            }
            defer { server.stop() }
            let response = try server.exchange(Record.head(parameters("GET", length: "0")))
            #expect(response.content.utf8.count == content.count)
            #expect(response.endStatus == 0)
        }

        private static func told(_ fields: HTTPFields) -> ResponseHead {
            ResponseHead(
                status: .init(code: 104, reasonPhrase: "Upload Resumption Supported"),
                fields: fields
            )
        }

        @Test("an interim head begins with Status, and its names are in lower case")
        func interimHead() throws {
            let server = try TestServer { exchange in
                exchange.send(interim: Self.told([.location: "/u/1", .contentType: "a/B"]))
                let head = ResponseHead(status: .created, fields: [.location: "/u/1"])
                TestServer.reply(exchange, Response(head))
            }
            defer { server.stop() }
            let response = try server.exchange(
                Record.head(parameters(length: "0", [("SPOOLGATE_INTERIM", "104")]))
            )
            #expect(
                response.text
                    == "Status: 104 Upload Resumption Supported\r\nlocation: /u/1\r\n"
                    + "content-type: a/B\r\n\r\n"
                    + "Location: /u/1\r\nStatus: 201 Created\r\nContent-Length: 0\r\n\r\n"
            )
        }

        @Test("an interim response is sent at once if the web server forwards it, otherwise never")
        func interim() throws {
            let gate = Gate()
            let server = try TestServer { exchange in
                exchange.send(interim: ResponseHead(status: .init(code: 103)))
                exchange.send(interim: Self.told([.location: "/u/1"]))
                if exchange.context.interimStatuses.contains(104) { gate.pass() }
                TestServer.reply(exchange, 201, "")
            }
            defer { server.stop() }
            let client = try server.client()
            client.send(Record.head(parameters(length: "0", [("SPOOLGATE_INTERIM", "104")])))
            #expect(client.waits { $0.interims == [104] })
            gate.open()
            let response = client.response()
            #expect(response.interims == [104])
            #expect(response.final.status == 201)
            let plain = try server.exchange(Record.head(parameters(length: "0")))
            #expect(plain.text.hasPrefix("Status: 201"))
        }

        @Test("an early response is complete before more content is read")
        func early() throws {
            let server = try TestServer { TestServer.reply($0, 413, "no") }
            defer { server.stop() }
            let client = try server.client()
            client.send(Record.head(parameters(length: "1000")) + Record.bytes(.stdin, [1]))
            let response = client.response()
            #expect(response.status == 413)
            #expect(response.endStatus == 0)
        }

        @Test("reading ends from a peer that keeps sending after its response")
        func lingering() throws {
            let server = try TestServer(
                {
                    $0.lingerIdle = .seconds(5)
                    $0.lingerTotal = .milliseconds(200)
                },
                response: { TestServer.reply($0, 413, "no") }
            )
            defer { server.stop() }
            let client = try server.client()
            client.send(Record.head(parameters()))
            let deadline = Deadline.after(.seconds(8))
            while client.send([UInt8](repeating: 0, count: 100)), !deadline.hasPassed {
                usleep(1000)
            }
            #expect(!deadline.hasPassed)
            #expect(eventually { server.server.load.active == 0 })
        }

        @Test("an incomplete response gets no END_REQUEST")
        func incomplete() throws {
            let server = try TestServer { exchange in
                switch try? exchange.head.get().method {
                case .get: break
                case .delete: exchange.abort()
                default:
                    try? exchange.send(head: ResponseHead(status: .ok), contentLength: 5)
                    let part: [UInt8] = [65]
                    try? exchange.send(content: part.span.bytes)
                }
            }
            defer { server.stop() }
            for method in ["GET", "DELETE", "PUT"] {
                let response = try server.exchange(Record.head(parameters(method, length: "0")))
                #expect(response.endStatus == nil, "\(method)")
                #expect(response.isClosed)
            }
            #expect(eventually { server.events.count == 2 })
            #expect(server.events == [.incompleteResponse, .incompleteResponse])
        }

        @Test(
            "a response can be replaced until its first byte is sent",
            arguments: [
                (nil, 0, true), (nil, 1, false), (5, 0, true), (5, 4, true),
                (100_000, 50_000, false),
            ] as [(Int64?, Int, Bool)]
        )
        func withdrawn(length: Int64?, count: Int, isUnsent: Bool) throws {
            let server = try TestServer { exchange in
                #expect(exchange.withdraw())
                exchange.send(interim: ResponseHead(status: .init(code: 104)))
                #expect(exchange.withdraw())
                try exchange.send(head: ResponseHead(status: .ok), contentLength: length)
                let content = [UInt8](repeating: 65, count: count)
                if count > 0 { try exchange.send(content: content.span.bytes) }
                #expect(exchange.withdraw() == isUnsent)
                if isUnsent { TestServer.reply(exchange, 502, "broken") } else { exchange.abort() }
            }
            defer { server.stop() }
            let response = try server.exchange(
                Record.head(parameters("GET", length: "0", [("SPOOLGATE_INTERIM", "104")]))
            )
            #expect(response.interims == [104])
            #expect(response.final.status == (isUnsent ? 502 : 200))
            #expect(response.endStatus == (isUnsent ? 0 : nil))
            #expect(response.final.content.utf8.count == (isUnsent ? 6 : count))
        }

        @Test("content beyond the announced length is not sent")
        func tooMuch() throws {
            let server = try TestServer { exchange in
                let content: [UInt8] = [65, 66, 67]
                try? exchange.send(head: ResponseHead(status: .ok), contentLength: 2)
                try? exchange.send(content: content.span.bytes)
            }
            defer { server.stop() }
            let response = try server.exchange(Record.head(parameters(length: "0")))
            #expect(response.content == "AB")
            #expect(response.endStatus == 0)
        }

        @Test("a web server that left or does not read ends the response")
        func clientGone() throws {
            for leaves in [true, false] {
                let begun = Gate()
                let left = Gate()
                let outcome = Monitor<(Bool, Bool)?>(nil)
                let server = try TestServer({ $0.stallTimeout = .milliseconds(200) }) { exchange in
                    begun.open()
                    left.pass()
                    // A child process also holds the closed socket until it calls exec.
                    let isPeerGone =
                        leaves ? eventually { exchange.isPeerGone } : exchange.isPeerGone
                    var isGone = false
                    let content = [UInt8](repeating: 0, count: 1 << 20)
                    do throws(ClientGone) {
                        try exchange.send(head: ResponseHead(status: .ok), contentLength: nil)
                        try exchange.send(content: content.span.bytes)
                    } catch {
                        isGone = true
                    }
                    outcome.update { $0 = (isPeerGone, isGone) }
                }
                var client: FastCGIClient? = try server.client()
                client?.send(Record.head(parameters(length: "0")))
                begun.pass()
                if leaves { client = nil }
                left.open()
                let found = outcome.wait(until: .after(.seconds(300))) { $0 }
                #expect(found?.0 == leaves)
                #expect(found?.1 == true)
                #expect(server.stop())
                withExtendedLifetime(client) {}
            }
        }

        @Test("an invalid head is passed to the handler, with the operator's words")
        func refusedHead() throws {
            let server = try TestServer()
            defer { server.stop() }
            let large = [("HTTP_X", String(repeating: "a", count: 100_000))]
            let many = (0..<10_000).map { ("HTTP_X_\($0)", "1") }
            for more in [large, many] {
                let response = try server.exchange(
                    Record.head(parameters(length: "0", more)) + Record.bytes(.stdin)
                )
                #expect(response.status == 431)
                #expect(response.content.contains("\"status\":431"))
            }
            for role: UInt16 in [2, 3] {
                let response = try server.exchange(Record.head(parameters(length: "0"), role: role))
                #expect(response.status == 500)
            }
        }
    }
}
