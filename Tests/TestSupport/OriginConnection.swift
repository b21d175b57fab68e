// One connection of a LoopbackOrigin: reading requests and writing what the script says.
//
// It does not close itself, but for `reset`; the origin does when the script returns. The invariant:
// nothing is read beyond what was asked for, but for bytes kept for the next read.

import Foundation

/// One accepted connection.
///
/// One thread.
package final class OriginConnection: @unchecked Sendable {
    /// The socket.
    package let number: Int32
    /// Called for every head that was read.
    package var onHead: () -> Void = {}
    private var buffered: [UInt8] = []
    private let note: @Sendable (LoopbackOrigin.Request) -> Void

    init(_ number: Int32, note: @escaping @Sendable (LoopbackOrigin.Request) -> Void) {
        self.number = number
        self.note = note
    }

    /// What one recv(2) gives; empty at the end of the connection.
    package func receive(atMost limit: Int = 1 << 16) -> [UInt8] {
        guard buffered.isEmpty else {
            defer { buffered.removeFirst(min(limit, buffered.count)) }
            return Array(buffered.prefix(limit))
        }
        return [UInt8](unsafeUninitializedCapacity: limit) { buffer, count in
            count = max(0, recv(number, buffer.baseAddress, limit, 0))
        }
    }

    /// A request's head; nil when the connection ends before its first byte.
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
            onHead()
            return .init(line: lines[0], fieldLines: Array(lines.dropFirst()))
        }
    }

    /// A whole request, `keptContent` bytes of its content kept; nil at the connection's end.
    package func receiveRequest(keptContent: Int = .max) throws -> LoopbackOrigin.Request? {
        guard var request = try receiveHead() else { return nil }
        func take(_ count: Int) throws {
            var left = count
            while left > 0 {
                let part = receive(atMost: min(left, 1 << 18))
                guard !part.isEmpty else { throw LoopbackOrigin.Ended() }
                left -= part.count
                request.contentLength += part.count
                request.content += part.prefix(max(0, keptContent - request.content.count))
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
        note(request)
        return request
    }

    private func receiveLine() throws -> String {
        var line: [UInt8] = []
        while true {
            guard let byte = receive(atMost: 1).first else { throw LoopbackOrigin.Ended() }
            if byte == 0x0a { break }
            if byte != 0x0d { line.append(byte) }
        }
        return String(decoding: line, as: UTF8.self)
    }

    /// Sends text as it stands.
    package func send(_ text: String) throws { try send(Array(text.utf8)) }

    /// Sends bytes.
    package func send(_ bytes: [UInt8]) throws {
        var sent = 0
        while sent < bytes.count {
            let count = bytes.withUnsafeBytes {
                Glibc.send(
                    number,
                    $0.baseAddress?.advanced(by: sent),
                    bytes.count - sent,
                    Int32(MSG_NOSIGNAL)
                )
            }
            guard count > 0 else { throw LoopbackOrigin.Ended() }
            sent += count
        }
    }

    /// Sends a whole response with a length.
    package func answer(
        _ status: String,
        fields: [String] = [],
        content: String = "",
        hasContent: Bool = true
    ) throws {
        let lines = ["HTTP/1.1 \(status)"] + fields + ["Content-Length: \(content.utf8.count)"]
        try send(lines.joined(separator: "\r\n") + "\r\n\r\n" + (hasContent ? content : ""))
    }

    /// Makes the coming close a reset (RST).
    package func reset() {
        var option = linger(l_onoff: 1, l_linger: 0)
        setsockopt(
            number,
            SOL_SOCKET,
            SO_LINGER,
            &option,
            socklen_t(MemoryLayout<linger>.size)
        )
    }

    /// Waits until the connection is reset or the origin stops, reading nothing at all.
    package func waitWithoutReading() {
        var one = pollfd(fd: number, events: 0, revents: 0)
        while poll(&one, 1, -1) < 0, errno == EINTR {}
    }

    /// Waits until the peer closes, reading nothing into memory.
    package func waitForEnd() { while !receive().isEmpty {} }
}
