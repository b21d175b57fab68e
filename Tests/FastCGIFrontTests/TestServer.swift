// A FastCGI listener for one test.

import Foundation
import HTTPTypes
import SpoolgateExchange
import SpoolgateFastCGIFront
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSettings
import SpoolgateUploadProtocol
import Synchronization
import Testing

final class TestServer: Sendable {
    let path: String
    let server: FastCGIServer

    init(
        _ change: (inout FastCGIServer.Settings) -> Void = { _ in },
        response: @escaping @Sendable (any Exchange) throws -> Void
    ) throws {
        path = "/tmp/fcgi-\(UUID().uuidString.prefix(13)).sock"
        var settings = FastCGIServer.Settings()
        settings.minimumSpare = 1
        settings.maximum = 32
        settings.lingerIdle = .milliseconds(50)
        change(&settings)
        let log = EventLog()
        server = try FastCGIServer(
            settings: settings,
            listener: .open(.unix(path: path, mode: 0o600, group: nil)),
            report: { log.add($0) },
            respond: { exchange, isLast in
                if isLast { return TestServer.reply(exchange, Refusal.busy.response) }
                do { try response(exchange) } catch { Issue.record(error) }
            }
        )
        self.log = log
        try server.start()
    }

    convenience init(changing change: (inout FastCGIServer.Settings) -> Void = { _ in }) throws {
        try self.init(change, response: TestServer.tell)
    }

    private let log: EventLog

    var events: [ListenerEvent] { log.events }

    func client() throws -> FastCGIClient { try FastCGIClient(path) }

    func exchange(_ bytes: [UInt8]) throws -> Answer {
        let client = try client()
        client.send(bytes)
        return client.response()
    }

    /// False if a request is still active after ten seconds.
    @discardableResult
    func stop() -> Bool { server.drain(until: .after(.seconds(10))) {} }

    /// Responds with the content's length, checksum and end.
    static let tell: @Sendable (any Exchange) -> Void = { exchange in
        switch exchange.head {
        case .failure(let refusal): reply(exchange, refusal.response)
        case .success:
            let told = Received(all: exchange)
            reply(exchange, 200, "\(told.count) \(told.sum) \(told.end)")
        }
    }

    static func reply(_ exchange: any Exchange, _ status: Int, _ text: String) {
        let head = ResponseHead(status: .init(code: status), fields: [.contentType: "text/plain"])
        reply(exchange, Response(head, content: Array(text.utf8)))
    }

    static func reply(_ exchange: any Exchange, _ response: Response) {
        do throws(ClientGone) {
            try exchange.send(head: response.head, contentLength: Int64(response.content.count))
            try exchange.send(content: response.content.span.bytes)
        } catch {}
    }
}

private final class EventLog: Sendable {
    private let list = Mutex<[ListenerEvent]>([])
    var events: [ListenerEvent] { list.withLock { $0 } }
    func add(_ event: ListenerEvent) { list.withLock { $0.append(event) } }
}

struct Received {
    var count = 0
    var sum = 0
    var end = "complete"

    init(all exchange: any Exchange, capacity: Int = 64 * 1024) {
        guard let buffer = try? ContentBuffer(capacity: capacity) else {
            end = "no memory"
            return
        }
        do throws(ContentError) {
            while try exchange.receive(into: buffer) {
                count += buffer.count
                sum = buffer.withBytes { Self.add($0, to: sum) }
                buffer.removeAll()
            }
        } catch {
            end = error.rawValue
        }
    }

    private static func add(_ bytes: RawSpan, to sum: Int) -> Int {
        bytes.withUnsafeBytes { $0.reduce(sum) { ($0 &* 31 &+ Int($1)) & 0xFFFF_FFFF } }
    }

    static func text(_ content: [UInt8], _ end: String = "complete") -> String {
        let sum = content.reduce(0) { ($0 &* 31 &+ Int($1)) & 0xFFFF_FFFF }
        return "\(content.count) \(sum) \(end)"
    }
}

/// Polls; returns false after ten seconds.
func eventually(_ condition: () throws -> Bool) rethrows -> Bool {
    let deadline = Deadline.after(.seconds(10))
    while !deadline.hasPassed {
        if try condition() { return true }
        usleep(2000)
    }
    return try condition()
}

func parameters(
    _ method: String = "PUT",
    length: String? = nil,
    _ more: [(String, String)] = []
) -> [(String, String)] {
    var all = [("REQUEST_METHOD", method), ("REQUEST_URI", "/files/a?b=c")]
    if let length { all.append(("CONTENT_LENGTH", length)) }
    return all + more
}
