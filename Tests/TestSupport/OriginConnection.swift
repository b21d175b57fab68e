// One connection of a `LoopbackOrigin`, which reads requests and writes the script's responses.
//
// The origin closes it when the script returns. Invariant: bytes read beyond a request are kept for the next read.

import Foundation

/// One accepted connection, used by one thread.
package final class OriginConnection: @unchecked Sendable {
    package var number: Int32 { socket.number }
    /// Called after each header section.
    package var onHead: () -> Void = {}
    private let socket: StreamSocket
    private let book: LoopbackOrigin.Book
    private var buffered: [UInt8] = []
    /// For discarded bytes.
    private lazy var room = [UInt8](repeating: 0, count: 256 << 10)
    /// The request being read or responded to.
    private var current: Int?

    init(_ socket: StreamSocket, _ book: LoopbackOrigin.Book) {
        self.socket = socket
        self.book = book
    }

    /// The origin's complete requests, on all connections.
    package var requests: [LoopbackOrigin.Request] { book.all.filter(\.isWhole) }

    /// The result of one recv(2); empty at the end.
    package func receive(upTo limit: Int = 1 << 16) -> [UInt8] {
        guard buffered.isEmpty else {
            defer { buffered.removeFirst(min(limit, buffered.count)) }
            return Array(buffered.prefix(limit))
        }
        return socket.receive(upTo: limit) ?? []
    }

    /// Discards `count` bytes; returns how many arrived before the end of the connection.
    package func discard(_ count: Int) -> Int {
        var taken = min(count, buffered.count)
        buffered.removeFirst(taken)
        while taken < count {
            let received = recv(number, &room, min(count - taken, room.count), 0)
            guard received > 0 else { break }
            taken += received
        }
        return taken
    }

    /// Reads a request's header section; nil if the connection ends before its first byte.
    package func receiveHead() throws -> LoopbackOrigin.Request? {
        var bytes: [UInt8] = []
        let end = Data("\r\n\r\n".utf8)
        while true {
            let part = receive()
            if part.isEmpty {
                guard bytes.isEmpty else { throw LoopbackOrigin.Ended() }
                return nil
            }
            bytes += part
            guard let range = Data(bytes).range(of: end) else { continue }
            buffered = Array(bytes[range.upperBound...]) + buffered
            let text = String(data: Data(bytes[..<range.lowerBound]), encoding: .isoLatin1) ?? ""
            let lines = text.components(separatedBy: "\r\n")
            let request = book.add(.init(line: lines[0], fieldLines: Array(lines.dropFirst())))
            current = request.number
            onHead()
            return request
        }
    }

    /// Reads a whole request and keeps `keptContent` bytes of content; nil at the end of the connection.
    package func receiveRequest(keptContent: Int = .max) throws -> LoopbackOrigin.Request? {
        guard var request = try receiveHead() else { return nil }
        try receiveContent(of: &request, keptContent: keptContent)
        return request
    }

    /// Reads a request's content, calls `onPart` with the bytes so far after at most 64 KiB each, and throws `Ended` if
    /// it is incomplete.
    package func receiveContent(
        of request: inout LoopbackOrigin.Request,
        keptContent: Int = .max,
        onPart: (Int) throws -> Void = { _ in }
    ) throws {
        func take(_ count: Int) throws {
            var left = count
            while left > 0 {
                let part = receive(upTo: min(left, 1 << 16))
                guard !part.isEmpty else { throw LoopbackOrigin.Ended() }
                left -= part.count
                let kept = part.prefix(max(0, keptContent - request.content.count))
                request.contentLength += part.count
                request.content += kept
                book.change(request.number) {
                    $0.contentLength += part.count
                    $0.content += kept
                }
                try onPart(request.contentLength)
            }
        }
        if request.values("Transfer-Encoding") == ["chunked"] {
            while true {
                guard let size = Int(try receiveLine(), radix: 16) else {
                    throw LoopbackOrigin.Ended()
                }
                try take(size)
                guard try receiveLine().isEmpty else { throw LoopbackOrigin.Ended() }
                if size == 0 { break }
            }
        } else if let length = request.values("Content-Length").first.flatMap({ Int($0) }) {
            try take(length)
        }
        request.isWhole = true
        book.change(request.number) { $0.isWhole = true }
    }

    private func receiveLine() throws -> String {
        var line: [UInt8] = []
        while true {
            guard let byte = receive(upTo: 1).first else { throw LoopbackOrigin.Ended() }
            if byte == 0x0a { break }
            if byte != 0x0d { line.append(byte) }
        }
        return String(decoding: line, as: UTF8.self)
    }

    /// Sends text unchanged.
    package func send(_ text: String) throws { try send(Array(text.utf8)) }

    /// Sends bytes.
    package func send(_ bytes: [UInt8]) throws {
        guard socket.send(bytes) else { throw LoopbackOrigin.Ended() }
    }

    /// Sends a whole response with a length.
    package func response(
        _ status: String,
        fields: [String] = [],
        content: String = "",
        hasContent: Bool = true
    ) throws {
        let lines = ["HTTP/1.1 \(status)"] + fields + ["Content-Length: \(content.utf8.count)"]
        try send(lines.joined(separator: "\r\n") + "\r\n\r\n" + (hasContent ? content : ""))
        noteReply()
    }

    /// Records that the last response was sent whole.
    package func noteReply() {
        if let current { book.change(current) { $0.isAnswered = true } }
    }

    /// Makes the next close a reset (RST).
    package func reset() { socket.resetAtEnd() }

    /// Waits until the connection is reset or the origin stops, without reading.
    package func waitWithoutReading() {
        var one = pollfd(fd: number, events: 0, revents: 0)
        while poll(&one, 1, -1) < 0, errno == EINTR {}
    }

    /// Waits until the peer closes, and discards its bytes.
    package func waitForEnd() { while !receive().isEmpty {} }
}
