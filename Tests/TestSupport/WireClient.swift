// A client with full control of its connection: it can close within a message, send malformed header sections, and read
// interim responses one by one.
//
// HTTP/1.1 only; no TLS, redirects, or reuse after an error.

import Foundation
import SpoolgatePosix

/// A kept-alive connection, used by one thread at a time.
package final class WireClient {
    /// One response, interim or final.
    package struct Answer {
        package var status: Int
        package var fields: [(name: String, value: String)]
        /// Decoded.
        package var content = Data()

        /// Reads a header section without its final empty line; throws `Broken` without a status.
        package init(head: String) throws {
            let lines = head.split(separator: "\r\n", omittingEmptySubsequences: false)
            guard
                let status = lines[0].split(separator: " ").dropFirst().first.flatMap({ Int($0) })
            else { throw Broken(description: "no status line: \(lines[0])") }
            self.status = status
            fields = lines.dropFirst().map { line in
                let parts = line.split(
                    separator: ":",
                    maxSplits: 1,
                    omittingEmptySubsequences: false
                )
                guard parts.count > 1 else { return (String(parts[0]), "") }
                return (String(parts[0]), parts[1].trimmingCharacters(in: .whitespaces))
            }
        }

        /// A field's value; the name ignores case.
        package subscript(name: String) -> String? {
            fields.first { $0.name.lowercased() == name.lowercased() }?.value
        }

        package var text: String { String(decoding: content, as: UTF8.self) }
    }

    /// The error of a client or of a tested program.
    package struct Broken: Error, CustomStringConvertible {
        package var description: String
        /// Creates an error from its sentence.
        package init(description: String) { self.description = description }
    }

    private let socket: StreamSocket
    private let patience: Int
    private let contentPatience: Int
    /// Consumed up to `position`.
    private var received: [UInt8] = []
    private var position = 0

    /// Connects from `source` within 127.0.0.0/8 (nil: any); a byte may take `patience` seconds, within content
    /// `contentPatience`.
    package init(
        to address: SocketAddress,
        from source: String? = nil,
        patience: Int = 60,
        contentPatience: Int? = nil
    ) throws(SystemError) {
        self.patience = patience
        self.contentPatience = contentPatience ?? patience
        socket = try StreamSocket(connectedTo: address, from: source, patience: patience)
    }

    /// Connects to a port of 127.0.0.1.
    package convenience init(
        port: Int,
        from source: String? = nil,
        contentPatience: Int? = nil
    ) throws(SystemError) {
        let address = SocketAddress.port(UInt16(port))
        try self.init(to: address, from: source, contentPatience: contentPatience)
    }

    deinit { socket.close() }

    /// Sends bytes; false if the peer has closed.
    @discardableResult
    package func send(_ data: Data) -> Bool { data.withUnsafeBytes { socket.send($0) } }

    /// Sends bytes; false if the peer has closed.
    @discardableResult
    package func send(_ bytes: UnsafeRawBufferPointer) -> Bool { socket.send(bytes) }

    /// Sends text; false if the peer has closed.
    @discardableResult
    package func send(_ text: String) -> Bool { socket.send(Array(text.utf8)) }

    /// Sends a request line and header section; `Host` is added.
    package func sendHead(_ method: String, _ target: String, _ fields: [String] = []) {
        let lines = ["\(method) \(target) HTTP/1.1", "Host: 127.0.0.1"] + fields
        send(lines.joined(separator: "\r\n") + "\r\n\r\n")
    }

    /// Sends one chunk.
    package func sendChunk(_ data: Data) {
        send(String(data.count, radix: 16) + "\r\n")
        send(data)
        send("\r\n")
    }

    /// Closes orderly (FIN) or with a reset.
    package func cut(reset: Bool = false) {
        if reset { socket.resetAtEnd() }
        socket.end()
    }

    /// Whether bytes can be read without waiting.
    package var isReadable: Bool {
        var one = pollfd(fd: socket.number, events: Int16(POLLIN), revents: 0)
        return position < received.count || poll(&one, 1, 0) > 0
    }

    /// Reads the next response, interim or final; `head`: without content.
    package func readAny(head: Bool = false) throws -> Answer {
        var response = try Answer(head: String(decoding: take(through: "\r\n\r\n"), as: UTF8.self))
        let status = response.status
        if head || status < 200 || status == 204 || status == 304 { return response }
        response.content = try readContent(of: response)
        return response
    }

    /// Reads the final response and skips interim ones.
    package func read(head: Bool = false) throws -> Answer {
        while true {
            let response = try readAny(head: head)
            if response.status >= 200 { return response }
        }
    }

    /// Sends a whole request and reads the final response.
    package func ask(
        _ method: String,
        _ target: String,
        _ fields: [String] = [],
        content: Data? = nil
    ) throws -> Answer {
        let length = content.map { ["Content-Length: \($0.count)"] } ?? []
        sendHead(method, target, fields + length)
        if let content { send(content) }
        return try read(head: method == "HEAD")
    }

    /// Reads the content of a response whose head was read.
    package func readContent(of response: Answer) throws -> Data {
        socket.setPatience(seconds: contentPatience)
        defer { socket.setPatience(seconds: patience) }
        if response["transfer-encoding"]?.lowercased() == "chunked" { return try readChunks() }
        if let length = response["content-length"].flatMap({ Int($0) }) {
            return Data(try take(length))
        }
        while try more() {}
        return Data(try take(received.count - position))
    }

    private func readChunks() throws -> Data {
        var content = Data()
        while true {
            let digits = String(decoding: try take(through: "\r\n"), as: UTF8.self)
            guard let size = Int(digits, radix: 16) else {
                throw Broken(description: "no chunk size: \(digits)")
            }
            content += try take(size)
            _ = try take(2)
            if size == 0 { return content }
        }
    }

    /// Consumes `count` bytes, once they have arrived.
    private func take(_ count: Int) throws -> ArraySlice<UInt8> {
        while received.count - position < count { try requireMore() }
        defer { position += count }
        return received[position..<position + count]
    }

    /// Consumes the bytes up to and including `end`, once it has arrived.
    private func take(through end: StaticString) throws -> ArraySlice<UInt8> {
        let size = end.utf8CodeUnitCount
        // After the bytes already searched.
        var start = position
        while true {
            let found = received.withUnsafeBytes { Self.find(end, in: $0, from: start) }
            if let found {
                defer { position = found + size }
                return received[position..<found]
            }
            let seen = max(0, received.count - position - size + 1)
            try requireMore()
            start = position + seen
        }
    }

    private static func find(
        _ text: StaticString,
        in bytes: UnsafeRawBufferPointer,
        from start: Int
    ) -> Int? {
        guard let base = bytes.baseAddress else { return nil }
        let last = bytes.count - text.utf8CodeUnitCount
        var place = start
        while place <= last {
            let first = Int32(text.utf8Start[0])
            guard let hit = memchr(base + place, first, last - place + 1) else { return nil }
            if memcmp(hit, text.utf8Start, text.utf8CodeUnitCount) == 0 {
                return UnsafeRawPointer(hit) - base
            }
            place = UnsafeRawPointer(hit) - base + 1
        }
        return nil
    }

    private func requireMore() throws {
        guard try !more() else { return }
        throw Broken(description: "connection ended after: \(beginning)")
    }

    /// The beginning of the unconsumed bytes.
    private var beginning: String {
        String(decoding: received[position...].prefix(200), as: UTF8.self)
    }

    private func more() throws -> Bool {
        guard let part = socket.receive() else {
            let error = SystemError("recv", on: "a response")
            throw Broken(description: "\(error), after: \(beginning)")
        }
        if position > 0 { received.removeFirst(position) }
        position = 0
        received += part
        return !part.isEmpty
    }
}
