// A client that does with its connection what no library lets one do: sends part of a message and
// breaks off, sends malformed heads, reads interim responses one by one.
//
// HTTP/1.1 over TCP only; no TLS, no redirects, no reuse of a connection after an error.

import Foundation
import TestSupport

/// One connection to a web server.
final class WireClient {
    /// One response, interim or final.
    struct Answer {
        var status: Int
        var fields: [(name: String, value: String)]
        var content: Data

        /// From a head without the empty line at its end.
        init(head: String) throws {
            let lines = head.components(separatedBy: "\r\n")
            guard
                let status = lines[0].split(separator: " ").dropFirst().first.flatMap({ Int($0) })
            else { throw Broken(description: "no status line: \(lines[0])") }
            self.status = status
            content = Data()
            fields = lines.dropFirst().map { line in
                let parts = line.split(separator: ":", maxSplits: 1)
                return (
                    String(parts[0]),
                    parts.count > 1 ? parts[1].trimmingCharacters(in: .whitespaces) : ""
                )
            }
        }

        /// The value of a field, names compared without case.
        subscript(name: String) -> String? {
            fields.first { $0.name.lowercased() == name.lowercased() }?.value
        }

        /// The content as text.
        var text: String { String(decoding: content, as: UTF8.self) }
    }

    struct Broken: Error, CustomStringConvertible { var description: String }

    private let socket: Int32
    private let contentPatience: Int
    private var received = Data()

    /// Connects.
    ///
    /// - Parameters:
    ///   - port: of 127.0.0.1.
    ///   - source: the client's own address, within 127.0.0.0/8.
    ///   - contentPatience: the longest pause, in seconds, within a response's content.
    /// - Throws: `Broken` where nobody listens.
    init(port: Int, from source: String = "127.0.0.1", contentPatience: Int = 60) throws {
        self.contentPatience = contentPatience
        socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        // Its port is chosen by connect: chosen by bind, it could be no other connection's.
        var isChosenLater: Int32 = 1
        let size = socklen_t(MemoryLayout<Int32>.size)
        setsockopt(socket, Int32(IPPROTO_IP), IP_BIND_ADDRESS_NO_PORT, &isChosenLater, size)
        let isBound = Self.with(source, port: 0) { bind(socket, $0, $1) } == 0
        let isConnected = Self.with("127.0.0.1", port: port) { connect(socket, $0, $1) } == 0
        guard isBound, isConnected else {
            throw Broken(description: "connect \(port) from \(source): errno \(errno)")
        }
        wait(atMost: 60)
    }

    private static func with(
        _ host: String,
        port: Int,
        _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32
    ) -> Int32 {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = UInt16(port).bigEndian
        address.sin_addr.s_addr = inet_addr(host)
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                body($0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
    }

    deinit { Glibc.close(socket) }

    /// Sends bytes as they are; false if the other side has gone.
    @discardableResult
    func send(_ data: Data) -> Bool {
        data.withUnsafeBytes { bytes in
            var sent = 0
            while sent < bytes.count {
                let count = Glibc.send(
                    socket,
                    bytes.baseAddress?.advanced(by: sent),
                    bytes.count - sent,
                    Int32(MSG_NOSIGNAL)
                )
                guard count > 0 else { return false }
                sent += count
            }
            return true
        }
    }

    @discardableResult
    func send(_ text: String) -> Bool { send(Data(text.utf8)) }

    /// Sends a request head; `Host` is added.
    func sendHead(_ method: String, _ target: String, _ fields: [String] = []) {
        let lines = ["\(method) \(target) HTTP/1.1", "Host: 127.0.0.1"] + fields
        send(lines.joined(separator: "\r\n") + "\r\n\r\n")
    }

    /// Sends one chunk of a chunked message.
    func sendChunk(_ data: Data) {
        send(String(data.count, radix: 16) + "\r\n")
        send(data)
        send("\r\n")
    }

    /// Breaks the connection: orderly (FIN) or with a reset.
    func cut(reset: Bool = false) {
        if reset {
            var now = linger(l_onoff: 1, l_linger: 0)
            setsockopt(
                socket,
                SOL_SOCKET,
                SO_LINGER,
                &now,
                socklen_t(MemoryLayout<linger>.size)
            )
        }
        shutdown(socket, Int32(SHUT_RDWR))
    }

    /// Whether there is something to read already.
    var isReadable: Bool {
        var one = pollfd(fd: socket, events: Int16(POLLIN), revents: 0)
        return !received.isEmpty || poll(&one, 1, 0) > 0
    }

    /// Reads the next response, interim ones included.
    func readAny(head: Bool = false) throws -> Answer {
        let end = Data("\r\n\r\n".utf8)
        let boundary = try fill { $0.range(of: end)?.lowerBound }
        var answer = try Answer(
            head: String(decoding: received[received.startIndex..<boundary], as: UTF8.self)
        )
        received.removeSubrange(received.startIndex..<boundary + 4)
        let status = answer.status
        if head || status < 200 || status == 204 || status == 304 { return answer }
        wait(atMost: contentPatience)
        defer { wait(atMost: 60) }
        answer.content = try readContent(answer)
        return answer
    }

    /// Reads the final response, passing over interim ones.
    func read(head: Bool = false) throws -> Answer {
        while true {
            let answer = try readAny(head: head)
            if answer.status >= 200 { return answer }
        }
    }

    /// One request with its whole content and its final response.
    func ask(
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

    private func wait(atMost seconds: Int) {
        var patience = timeval(tv_sec: seconds, tv_usec: 0)
        setsockopt(
            socket,
            SOL_SOCKET,
            SO_RCVTIMEO,
            &patience,
            socklen_t(MemoryLayout<timeval>.size)
        )
    }

    private func readContent(_ answer: Answer) throws -> Data {
        if answer["transfer-encoding"]?.lowercased() == "chunked" { return try readChunks() }
        guard let length = answer["content-length"].flatMap({ Int($0) }) else {
            while try more() {}
            defer { received.removeAll() }
            return received
        }
        _ = try fill { $0.count >= length ? true : nil }
        defer { received.removeSubrange(received.startIndex..<received.startIndex + length) }
        return received.prefix(length)
    }

    private func readChunks() throws -> Data {
        var content = Data()
        while true {
            let line = try fill { $0.range(of: Data("\r\n".utf8)) }
            let digits = String(
                decoding: received[received.startIndex..<line.lowerBound],
                as: UTF8.self
            )
            guard let size = Int(digits, radix: 16) else {
                throw Broken(description: "no chunk size: \(digits)")
            }
            received.removeSubrange(received.startIndex..<line.upperBound)
            _ = try fill { $0.count >= size + 2 ? true : nil }
            content.append(received.prefix(size))
            received.removeSubrange(received.startIndex..<received.startIndex + size + 2)
            if size == 0 { return content }
        }
    }

    /// Receives until `found` finds something in what was received.
    private func fill<T>(_ found: (Data) -> T?) throws -> T {
        while true {
            if let value = found(received) { return value }
            guard try more() else {
                throw Broken(
                    description: "connection ended after: "
                        + String(decoding: received.prefix(200), as: UTF8.self)
                )
            }
        }
    }

    private func more() throws -> Bool {
        var chunk = [UInt8](repeating: 0, count: 256 << 10)
        let count = recv(socket, &chunk, chunk.count, 0)
        guard count >= 0 else { throw Broken(description: "recv: errno \(errno)") }
        received.append(contentsOf: chunk[..<count])
        return count > 0
    }
}
