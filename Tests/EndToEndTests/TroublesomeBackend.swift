// A backend that gets one request wrong in one way, answers all others with 201, and writes down what
// it was sent: the log that exactly-once is read from.

import Foundation
import Synchronization
import TestSupport

/// What can go wrong with one request.
enum Trouble: String, CaseIterable {
    /// Reads nothing and says nothing.
    case stallsUnread
    /// Reads all and says nothing.
    case stalls
    /// Resets the connection in the middle of the content.
    case resets
    /// Reads all and closes.
    case closes
    /// Answers 413 before the content, and closes.
    case answersEarly
    /// Several interim responses before the final one.
    case interims
    /// 503, this once.
    case busy
    /// A response larger than is stored.
    case huge
    /// A response shorter than it says.
    case cutsAnswer
    /// A response longer than it says.
    case overlongAnswer

    /// The daemon's patience: short only where it must run out.
    var timeouts: String {
        let seconds = self == .stalls || self == .stallsUnread ? 1 : 60
        return "timeouts: {connect: 60s, stall: \(seconds)s, response: \(seconds)s}"
    }

    /// What comes of it.
    enum End {
        /// The upstream's answer with this status.
        case answered(Int)
        /// An answer that says: not now.
        case putOff(Int)
        /// No whole answer.
        case unknown
    }

    var end: End {
        switch self {
        case .stallsUnread, .stalls, .resets, .closes, .cutsAnswer: .unknown
        case .answersEarly: .answered(413)
        case .interims, .huge, .overlongAnswer: .answered(201)
        case .busy: .putOff(503)
        }
    }
}

/// The backend; gone with the test.
final class TroublesomeBackend: Sendable {
    static let hugeSize = 2 << 20

    private struct Entry {
        var target: String
        var line: String
        var received = 0
    }

    private final class Book: Sendable {
        let entries = Mutex<[Entry]>([])
        let trouble: Mutex<Trouble?>
        init(_ trouble: Trouble) { self.trouble = Mutex(trouble) }
    }

    private let book: Book
    private let origin: LoopbackOrigin

    var url: String { origin.base }

    init(_ trouble: Trouble) throws {
        let book = Book(trouble)
        self.book = book
        origin = try LoopbackOrigin { connection in
            while let head = try connection.receiveHead() {
                let words = head.line.components(separatedBy: " ")
                let number = book.entries.withLock { entries in
                    entries.append(Entry(target: words[1], line: head.line))
                    return entries.count - 1
                }
                // Only the first request has the trouble.
                let trouble = book.trouble.withLock { trouble in
                    defer { trouble = nil }
                    return trouble
                }
                try Self.serve(head, on: connection, trouble) { count in
                    book.entries.withLock { $0[number].received += count }
                }
            }
        }
    }

    /// How often it was sent a request for a target, whole or not.
    func count(of target: String) -> Int {
        book.entries.withLock { $0.count { $0.target == target } }
    }

    private static func serve(
        _ head: LoopbackOrigin.Request,
        on connection: OriginConnection,
        _ trouble: Trouble?,
        _ note: (Int) -> Void
    ) throws {
        let length = head.values("Content-Length").first.flatMap { Int($0) } ?? 0
        if trouble == .stallsUnread { return connection.waitWithoutReading() }
        if trouble == .answersEarly {
            try connection.answer(
                "413 Content Too Large",
                fields: ["Connection: close"],
                content: "no"
            )
            connection.waitForEnd()
            throw LoopbackOrigin.Ended()
        }
        var left = length
        while left > 0 {
            let part = connection.receive(atMost: min(left, 1 << 16))
            guard !part.isEmpty else { throw LoopbackOrigin.Ended() }
            left -= part.count
            note(part.count)
            if trouble == .resets, left < length / 2 {
                connection.reset()
                throw LoopbackOrigin.Ended()
            }
        }
        switch trouble {
        case .stalls: connection.waitForEnd()
        case .closes: throw LoopbackOrigin.Ended()
        case .interims:
            try connection.send("HTTP/1.1 100 Continue\r\n\r\n")
            for _ in 0..<3 { try connection.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n") }
            try connection.answer("201 Created", content: "stored")
        case .busy:
            try connection.answer(
                "503 Service Unavailable",
                fields: ["Retry-After: 1"],
                content: "later"
            )
        case .huge:
            try connection.answer(
                "201 Created",
                content: String(repeating: "x", count: hugeSize)
            )
        case .cutsAnswer:
            try connection.send("HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\nshort")
            throw LoopbackOrigin.Ended()
        case .overlongAnswer:
            try connection.send("HTTP/1.1 201 Created\r\nContent-Length: 6\r\n\r\nstored and more")
            throw LoopbackOrigin.Ended()
        case .stallsUnread, .resets, .answersEarly, nil:
            try connection.answer("201 Created", content: "stored")
        }
    }
}
