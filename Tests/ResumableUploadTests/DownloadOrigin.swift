// A download server with one resource, whose responses are correct, wrong or interrupted, as the test orders.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport

@testable import ResumableUpload

final class DownloadOrigin: Sendable {
    struct Reply: Sendable {
        var status = "200 OK"
        var fields: [String] = []
        var content: [UInt8]
        /// The content bytes after which the connection closes; nil: never.
        var cut: Int?
        /// Whether it then waits for the client to close.
        var stalls = false
        /// Whether it sends `Content-Length` instead of chunks.
        var hasLength = true

        static func whole(_ content: [UInt8], _ fields: [String], cut: Int? = nil) -> Reply {
            Reply(fields: fields, content: content, cut: cut)
        }

        /// A correct part, from `start` on.
        static func part(_ content: [UInt8], from start: Int, _ fields: [String]) -> Reply {
            let range = "Content-Range: bytes \(start)-\(content.count - 1)/\(content.count)"
            return Reply(
                status: "206 Part",
                fields: fields + [range],
                content: Array(content[start...])
            )
        }

        /// The same with another `Content-Range`; nil removes it.
        func ranging(_ value: String?) -> Reply {
            var other = self
            other.fields.removeAll { $0.hasPrefix("Content-Range: ") }
            if let value { other.fields.append("Content-Range: \(value)") }
            return other
        }
    }

    struct Asked: Sendable {
        var number: Int
        var range: String?
        var condition: String?
        /// The range's first offset; 0 without a range.
        var start: Int { range.flatMap { Int($0.dropFirst(6).dropLast()) } ?? 0 }
    }

    let origin: LoopbackOrigin
    let sent: Monitor<Int>
    private let asked: Monitor<[Asked]>

    var url: String { origin.base + "/f" }
    var requests: [Asked] { asked.update { $0 } }
    var ranges: [String?] { requests.map(\.range) }

    init(_ response: @escaping @Sendable (Asked) -> Reply) throws {
        let (asked, sent) = (Monitor<[Asked]>([]), Monitor(0))
        (self.asked, self.sent) = (asked, sent)
        origin = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                let now = asked.update { all in
                    let now = Asked(
                        number: all.count,
                        range: request.values("Range").first,
                        condition: request.values("If-Range").first
                    )
                    all.append(now)
                    return now
                }
                let reply = response(now)
                let framing =
                    reply.hasLength
                    ? "Content-Length: \(reply.content.count)" : "Transfer-Encoding: chunked"
                let lines = ["HTTP/1.1 \(reply.status)"] + reply.fields + [framing]
                try connection.send(lines.joined(separator: "\r\n") + "\r\n\r\n")
                let content = reply.content.prefix(reply.cut ?? .max)
                for start in stride(from: 0, to: content.count, by: 1 << 16) {
                    let piece = Array(content[start..<min(start + (1 << 16), content.count)])
                    if !reply.hasLength {
                        try connection.send(String(piece.count, radix: 16) + "\r\n")
                    }
                    try connection.send(piece)
                    if !reply.hasLength { try connection.send("\r\n") }
                    sent.update { $0 += piece.count }
                }
                if reply.stalls { connection.waitForEnd() }
                if reply.cut != nil { throw LoopbackOrigin.Ended() }
                if !reply.hasLength { try connection.send("0\r\n\r\n") }
            }
        }
    }

    /// Options with immediate retries.
    static var options: Download.Options {
        var options = Download.Options()
        options.connection.firstPause = .milliseconds(5)
        options.connection.retryFor = .seconds(60)
        options.connection.usesProxies = false
        return options
    }
}

struct DownloadOutcome {
    var result: Result<Transfer.Response, TransferError>
    var download: Download
    var events: [Download.Event]

    var error: TransferError? { result.error }
    /// The reason for each new start.
    var anew: [String] {
        events.compactMap { if case .begunAnew(let reason) = $0 { reason } else { nil } }
    }

    init(
        _ url: String,
        to destination: Download.Destination,
        after token: Download.Token? = nil,
        options: Download.Options = DownloadOrigin.options
    ) {
        let events = Monitor<[Download.Event]>([])
        let note: @Sendable (Download.Event) -> Void = { event in
            events.update { $0.append(event) }
        }
        download =
            token.map { .resume(from: $0, to: destination, options: options, onEvent: note) }
            ?? Download(url, to: destination, options: options, onEvent: note)
        result = Result { [download] () throws(TransferError) in try download.perform() }
        self.events = events.update { $0 }
    }
}

extension ScratchDirectory {
    func content(_ name: String) -> [UInt8]? {
        FileManager.default.contents(atPath: file(name)).map { Array($0) }
    }
}
