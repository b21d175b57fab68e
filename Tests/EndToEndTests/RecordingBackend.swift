// A backend that writes down exactly what it was sent, request by request, and is as slow as a target
// tells it to be.
//
// The query of a target has its orders: `answer`, the bytes of its response's content, `status`, its
// status if not 201, and `pace`, microseconds of rest after each part of content it reads. It remembers
// contents whole.

import Foundation
import TestSupport

/// The backend; gone with the test.
final class RecordingBackend: Sendable {
    /// One request, as far as it came.
    struct Entry {
        /// Which request it was, of all.
        fileprivate var number = 0
        let method: String
        let target: String
        var content = Data()
        /// Whether its content came whole.
        var isWhole = false
        /// Whether the whole response was sent, not whether anybody read it.
        var isAnswered = false
    }

    /// Guards the entries.
    private final class Book: @unchecked Sendable {
        private let lock = NSLock()
        private var entries: [Entry] = []
        private var count = 0

        func add(_ entry: Entry) -> Int {
            lock.withLock {
                count += 1
                entries.append(entry)
                entries[entries.count - 1].number = count
                return count
            }
        }

        func change(_ number: Int, _ body: (inout Entry) -> Void) {
            lock.withLock {
                guard let index = entries.lastIndex(where: { $0.number == number }) else { return }
                body(&entries[index])
            }
        }

        var all: [Entry] { lock.withLock { entries } }

        func forget(_ target: String) {
            lock.withLock { entries.removeAll { $0.target == target } }
        }
    }

    private let book: Book
    private let origin: LoopbackOrigin

    /// The upstream's target for the gateway.
    var url: String { origin.base }

    init(_ moments: Moments) throws {
        let book = Book()
        self.book = book
        origin = try LoopbackOrigin { connection in
            while let head = try connection.receiveHead() {
                try Self.serve(head, on: connection, book, moments)
            }
        }
    }

    /// What it was sent to a target, in order.
    func entries(to target: String) -> [Entry] { book.all.filter { $0.target == target } }

    /// Forgets what it was sent to a target: contents are large.
    func forget(_ target: String) { book.forget(target) }

    /// The content of the response to a target.
    static func answer(to target: String) -> Data {
        let line = Data("stored \(target)\n".utf8)
        let size = order("answer", of: target)
        var content = line
        while content.count < size { content.append(line) }
        return content.prefix(max(size, line.count))
    }

    private static func order(_ name: String, of target: String) -> Int {
        URLComponents(string: target)?.queryItems?.first { $0.name == name }?.value
            .flatMap { Int($0) } ?? 0
    }

    private static func serve(
        _ head: LoopbackOrigin.Request,
        on connection: OriginConnection,
        _ book: Book,
        _ moments: Moments
    ) throws {
        let words = head.line.components(separatedBy: " ")
        let number = book.add(Entry(method: words[0], target: words[1]))
        moments.pass(.delivering)
        var left = head.values("Content-Length").first.flatMap { Int($0) } ?? 0
        while left > 0 {
            let part = connection.receive(atMost: min(left, 1 << 16))
            guard !part.isEmpty else { throw LoopbackOrigin.Ended() }
            left -= part.count
            book.change(number) { $0.content += part }
            moments.pass(.deliveringContent)
            let pace = order("pace", of: words[1])
            if pace > 0 { usleep(UInt32(pace)) }
        }
        book.change(number) { $0.isWhole = true }
        moments.pass(.delivered)
        let content = answer(to: words[1])
        let ordered = order("status", of: words[1])
        let status = ordered == 0 ? 201 : ordered
        try connection.send(
            "HTTP/1.1 \(status) Said\r\nX-Backend: recording\r\nContent-Length: \(content.count)\r\n\r\n"
        )
        try connection.send([UInt8](content.prefix(content.count / 2)))
        moments.pass(.answering)
        try connection.send([UInt8](content.suffix(from: content.count / 2)))
        book.change(number) { $0.isAnswered = true }
        moments.pass(.answered)
    }
}
