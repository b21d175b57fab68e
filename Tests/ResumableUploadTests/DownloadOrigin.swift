// A server of downloads that answers each request as a test says: right, wrong, or not to its end.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport

@testable import ResumableUpload

/// A server with one resource.
final class DownloadOrigin: Sendable {
    /// One response.
    struct Reply: Sendable {
        var status = "200 OK"
        var fields: [String] = []
        var content: [UInt8]
        /// Bytes after which it breaks; nil: it does not.
        var cut: Int?
        /// Whether it stands still there until the client is gone.
        var stalls = false
        /// Whether its length is told; if not, it is chunked.
        var hasLength = true

        /// The whole of a representation.
        static func whole(_ content: [UInt8], _ fields: [String], cut: Int? = nil) -> Reply {
            Reply(fields: fields, content: content, cut: cut)
        }

        /// A part of a representation from `start` on, as it ought to be.
        static func part(_ content: [UInt8], from start: Int, _ fields: [String]) -> Reply {
            let range = "Content-Range: bytes \(start)-\(content.count - 1)/\(content.count)"
            return Reply(
                status: "206 Part",
                fields: fields + [range],
                content: Array(content[start...])
            )
        }

        /// The same with another `Content-Range`; nil: with none.
        func ranging(_ value: String?) -> Reply {
            var other = self
            other.fields.removeAll { $0.hasPrefix("Content-Range: ") }
            if let value { other.fields.append("Content-Range: \(value)") }
            return other
        }
    }

    /// One request.
    struct Asked: Sendable {
        var number: Int
        var range: String?
        var condition: String?
        /// Where the range begins; 0 without one.
        var start: Int { range.flatMap { Int($0.dropFirst(6).dropLast()) } ?? 0 }
    }

    let origin: LoopbackOrigin
    /// Bytes of content that connections took.
    let sent: Monitor<Int>
    private let asked: Monitor<[Asked]>

    /// The URL of the resource.
    var url: String { origin.base + "/f" }
    /// The requests so far.
    var requests: [Asked] { asked.update { $0 } }
    /// Their ranges.
    var ranges: [String?] { requests.map(\.range) }

    init(_ answer: @escaping @Sendable (Asked) -> Reply) throws {
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
                let reply = answer(now)
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

    /// Options that try again at once.
    static var options: Download.Options {
        var options = Download.Options()
        options.connection.firstPause = .milliseconds(5)
        options.connection.retryFor = .seconds(60)
        options.connection.usesProxies = false
        return options
    }
}

/// What one download came to.
struct DownloadOutcome {
    var result: Result<Transfer.Answer, TransferError>
    var download: Download
    var events: [Download.Event]

    var error: TransferError? { result.error }
    /// Why it begun anew, each time.
    var anew: [String] {
        events.compactMap { if case .begunAnew(let reason) = $0 { reason } else { nil } }
    }

    /// Downloads.
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
    /// The content of a file in it; nil if it is not there.
    func content(_ name: String) -> [UInt8]? {
        FileManager.default.contents(atPath: file(name)).map { Array($0) }
    }
}
