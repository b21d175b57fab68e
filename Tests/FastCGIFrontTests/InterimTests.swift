// Interim responses from a gateway with and without `SPOOLGATE_INTERIM`.
//
// Without it, the web server takes the first head as the final one, so no byte of an interim response may be sent.

import Foundation
import HTTPTypes
import Logging
import SpoolgateFastCGIFront
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateJournal
@testable import SpoolgateRequests
@testable import SpoolgateSettings

/// Its upstream sends 103 and responds once the gate is open.
///
/// If the gate starts closed, heartbeats are frequent; otherwise none are sent.
private final class GatewayServer {
    let origin: LoopbackOrigin
    let gate = Gate()
    let server: TestServer
    let spool: Spool
    private let root: String

    init(isOpen: Bool = true) throws {
        origin = try LoopbackOrigin { [gate] connection in
            while try connection.receiveRequest() != nil {
                try connection.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
                gate.pass()
                try connection.response("200 OK", content: "done")
            }
        }
        root = "\(NSTemporaryDirectory())/front-\(UUID().uuidString)"
        var settings = Settings()
        settings.interim.progressInterval = .zero
        settings.interim.progressSize = 5
        settings.interim.heartbeat = isOpen ? .seconds(3600) : .milliseconds(20)
        var route = RouteSettings()
        route.upstream.targets = [.http(base: origin.base)]
        route.limits.minSize = 4
        settings.routes[RouteSettings.defaultName] = route
        spool = try Spool(directory: root)
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let gateway = Gateway(settings: settings, spool: spool, log: Log(logger))
        server = try TestServer { gateway.serve($0) }
        if isOpen { gate.open() }
    }

    deinit {
        gate.open()
        server.stop()
        try? FileManager.default.removeItem(atPath: root)
    }

    func queues() throws -> [Queue] {
        var queues: [Queue] = []
        try spool.forEachUpload { queues.append($0.queue) }
        return queues
    }

    func createPartial() throws -> String {
        let marked = [("HTTP_UPLOAD_COMPLETE", "?0"), ("SPOOLGATE_INTERIM", "104")]
        let response = try server.exchange(upload("POST", "/files", marked, "hel"))
        return try #require(response.final.field("Location"))
    }
}

private func upload(
    _ method: String,
    _ target: String,
    _ more: [(String, String)],
    _ content: String
) -> [UInt8] {
    Record.head(
        [
            ("REQUEST_METHOD", method), ("REQUEST_URI", target),
            ("CONTENT_LENGTH", "\(content.utf8.count)"),
            ("HTTP_UPLOAD_DRAFT_INTEROP_VERSION", "10"),
        ] + more
    ) + Record.stream(.stdin, Array(content.utf8))
}

extension Answer {
    fileprivate func field(_ name: String) -> String? {
        let line = head.components(separatedBy: "\r\n").first { $0.hasPrefix("\(name): ") }
        return line.map { String($0.dropFirst(name.count + 2)) }
    }
}

struct InterimCase: Sendable, CustomTestStringConvertible {
    var testDescription: String
    var method: String
    var parameters: [(String, String)]
    var content: String
    /// The interim responses if 104, 100 and 103 are forwarded.
    var all: [Int]
    var status: Int
    var isAppend: Bool { method == "PATCH" }

    init(
        _ description: String,
        _ method: String,
        _ parameters: [(String, String)],
        _ content: String,
        _ all: [Int],
        _ status: Int = 200
    ) {
        (testDescription, self.method, self.parameters) = (description, method, parameters)
        (self.content, self.all, self.status) = (content, all, status)
    }

    private static let whole = ("HTTP_UPLOAD_COMPLETE", "?1")
    private static let part = ("HTTP_UPLOAD_COMPLETE", "?0")

    private static func append(at offset: Int) -> [(String, String)] {
        [
            whole, ("HTTP_UPLOAD_OFFSET", "\(offset)"),
            ("CONTENT_TYPE", "application/partial-upload"),
        ]
    }

    static let all = [
        InterimCase("creation", "POST", [whole], "hello all", [104, 100, 104, 103]),
        InterimCase("partial creation", "POST", [part], "hel", [104, 100], 201),
        InterimCase("append", "PATCH", append(at: 3), "lo all", [100, 104, 103]),
        InterimCase("append at a wrong offset", "PATCH", append(at: 2), "lo", [], 409),
        InterimCase("creation below min-size", "POST", [whole], "hel", [100, 103]),
        InterimCase("ordinary upload", "PUT", [], "hello all", [100, 103]),
        InterimCase("pass-through", "PROPFIND", [], "hello all", [100, 103]),
    ]
}

extension FrontTests {
    @Suite struct InterimTests {
        @Test(
            "interim responses are sent if the web server forwards them, and never otherwise",
            arguments: InterimCase.all,
            [nil, "", "104", "104 100", "104 100 103"]
        )
        func forwarded(_ test: InterimCase, interim: String?) throws {
            let front = try GatewayServer()
            var more = test.parameters + [("HTTP_EXPECT", "100-continue")]
            if let interim { more.append(("SPOOLGATE_INTERIM", interim)) }
            let target = test.isAppend ? try front.createPartial() : "/files"
            let response = try front.server.exchange(
                upload(test.method, target, more, test.content)
            )
            let statuses = Set((interim ?? "").split(separator: " ").compactMap { Int($0) })
            #expect(response.interims == test.all.filter { statuses.contains($0) })
            for block in response.blocks.prefix(response.interims.count) {
                let lines = block.components(separatedBy: "\r\n").dropFirst()
                let names = lines.compactMap { $0.split(separator: ":").first.map(String.init) }
                #expect(names == names.map { $0.lowercased() })
            }
            #expect(!response.final.text.contains("Status: 1"))
            #expect(response.final.status == test.status)
            #expect(response.final.blocks.count == 2)
            if test.status == 200 { #expect(response.final.content == "done") }
            #expect(response.endStatus == 0)
        }

        @Test(
            "heartbeats are sent during the upstream's work if 104 is forwarded, and never otherwise"
        )
        func heartbeats() throws {
            let front = try GatewayServer(isOpen: false)
            let marked = [("HTTP_UPLOAD_COMPLETE", "?1")]
            let silent = try [[], [("SPOOLGATE_INTERIM", "100 103")]].map { interim in
                let client = try front.server.client()
                client.send(upload("POST", "/files", marked + interim, "hello"))
                return client
            }
            #expect(eventually { front.origin.requests.count == silent.count })
            let client = try front.server.client()
            let interim = [("SPOOLGATE_INTERIM", "104")]
            client.send(upload("POST", "/files", marked + interim, "hello"))
            let beat =
                "Status: 104 Upload Resumption Supported\r\nupload-draft-interop-version: 10\r\n"
                + "upload-offset: 5"
            // One from the creation, one with the progress, and three heartbeats.
            #expect(client.waits { $0.interims.count >= 5 })
            front.gate.open()
            let response = client.response()
            #expect(response.blocks[1..<response.interims.count].allSatisfy { $0 == beat })
            #expect(response.final.status == 200)
            #expect(response.final.content == "done")
            #expect(silent[0].response().interims == [])
            #expect(silent[1].response().interims == [103])
            for client in silent { #expect(client.response().final.content == "done") }
        }

        @Test("an unread heartbeat does not stop the delivery")
        func clientGone() throws {
            let front = try GatewayServer(isOpen: false)
            let marked = [("HTTP_UPLOAD_COMPLETE", "?1"), ("SPOOLGATE_INTERIM", "104")]
            let request = upload("POST", "/files", marked, "hello")
            var gone: FastCGIClient? = try front.server.client()
            gone?.send(request)
            #expect(eventually { front.origin.requests.count == 1 })
            gone = nil
            let other = try front.server.client()
            other.send(request)
            #expect(other.waits { $0.interims.count >= 5 })
            front.gate.open()
            #expect(other.response().final.status == 200)
            #expect(try eventually { try front.queues() == [.delivered, .delivered] })
            #expect(front.origin.requests.count == 2)
        }
    }
}
