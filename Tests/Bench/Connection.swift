// A small HTTP/1.1 client on one kept connection, and the content it sends.
//
// It knows Content-Length, chunked responses and interim responses; it follows nothing, retries
// nothing, and sends content only from one shared block. One thread at a time.

import Glibc

/// The bytes that all clients send: one block, written again and again.
enum Content {
    /// Bytes of the block.
    static let blockLength = 256 << 10
    /// The block: text-like bytes that differ, 0 to 250 over and over.
    static let block: [UInt8] = (0..<blockLength).map { UInt8($0 % 251) }
}

/// A request without its content.
struct Request {
    var method: String
    var target: String
    var fields: [(name: String, value: String)] = []
    /// Bytes of content; nil: no content and no Content-Length.
    var length: Int64?

    /// The head as it goes over the wire.
    var bytes: [UInt8] {
        var text = "\(method) \(target) HTTP/1.1\r\nHost: bench.test\r\n"
        for field in fields { text += "\(field.name): \(field.value)\r\n" }
        if let length { text += "Content-Length: \(length)\r\n" }
        return Array((text + "\r\n").utf8)
    }
}

/// A final response.
struct Response: Sendable {
    let status: Int
    /// The fields, names in lower case; of several with one name the last.
    let fields: [String: String]
    let content: String

    /// The field as a number.
    func number(_ name: String) -> Int64? {
        fields[name].flatMap { Int64($0) }
    }

    /// The path of `Location`, whether that is absolute or not.
    var locationPath: String? {
        guard let location = fields["location"] else { return nil }
        guard let scheme = location.firstRange(of: "://") else { return location }
        let rest = location[scheme.upperBound...]
        return rest.firstIndex(of: "/").map { String(rest[$0...]) }
    }
}

/// One connection to a server, kept for request after request.
final class Connection {
    private let socket: Int32
    private var buffer = [UInt8](repeating: 0, count: 16 << 10)
    /// Bytes of `buffer` that have come and are not yet used.
    private var unread = 0..<0

    /// Connects.
    init(to address: Address) throws(BenchFailure) {
        socket = try connectSocket(to: address)
    }

    deinit { close(socket) }

    /// Sends a request with `request.length` bytes of content and reads the final response.
    ///
    /// - Throws: `BenchFailure` if the connection breaks before a final response.
    func exchange(_ request: Request) throws(BenchFailure) -> Response {
        let sent = request.bytes.withUnsafeBytes { writeAll(socket, $0) }
        let complete = sent && send(content: request.length ?? 0)
        let reason = complete ? 0 : errno
        do throws(BenchFailure) {
            return try receive(for: request)
        } catch {
            guard complete else {
                throw BenchFailure(
                    call: "send",
                    on: "\(request.method) \(request.target)",
                    code: reason
                )
            }
            throw error
        }
    }

    /// Sends a request and requires `status`.
    @discardableResult
    func exchange(_ request: Request, expecting status: Int...) throws(BenchFailure) -> Response {
        let response = try exchange(request)
        guard status.contains(response.status) else {
            throw BenchFailure(
                "\(request.method) \(request.target) was answered \(response.status), not "
                    + "\(status.map(String.init).joined(separator: " or ")): "
                    + response.content.prefix(200)
            )
        }
        return response
    }

    private func send(content length: Int64) -> Bool {
        Content.block.withUnsafeBytes { block in
            var rest = length
            while rest > 0 {
                let part = UnsafeRawBufferPointer(rebasing: block.prefix(Int(min(rest, 1 << 30))))
                guard writeAll(socket, part) else { return false }
                rest -= Int64(part.count)
            }
            return true
        }
    }

    private func receive(for request: Request) throws(BenchFailure) -> Response {
        while true {
            let lines = try receiveHead(for: request)
            let words = lines[0].split(separator: " ")
            guard words.count >= 2, let status = Int(words[1]) else {
                throw BenchFailure("\(request.method) \(request.target): no HTTP: \(lines[0])")
            }
            if (100..<200).contains(status) { continue }
            var fields: [String: String] = [:]
            for line in lines.dropFirst() {
                guard let colon = line.firstIndex(of: ":") else { continue }
                let value = line[line.index(after: colon)...].drop { $0 == " " }
                fields[line[..<colon].lowercased()] = String(value)
            }
            var content: [UInt8] = []
            let empty = request.method == "HEAD" || status == 204 || status == 304
            if !empty { content = try receiveContent(fields) }
            return Response(
                status: status,
                fields: fields,
                content: String(decoding: content, as: UTF8.self)
            )
        }
    }

    /// Reads to the end of the next head.
    private func receiveHead(for request: Request) throws(BenchFailure) -> [Substring] {
        var head: [UInt8] = []
        while !head.ends(with: "\r\n\r\n") {
            guard let byte = try next() else {
                throw BenchFailure(
                    "\(request.method) \(request.target): the connection ended without a response"
                )
            }
            head.append(byte)
        }
        let text = String(decoding: head.dropLast(4), as: UTF8.self)
        return text.split(separator: "\r\n", omittingEmptySubsequences: false)
    }

    private func receiveContent(_ fields: [String: String]) throws(BenchFailure) -> [UInt8] {
        if fields["transfer-encoding"]?.lowercased() == "chunked" {
            var content: [UInt8] = []
            while true {
                let size = Int(try receiveLine().prefix { $0 != ";" }, radix: 16) ?? 0
                content += try receive(count: size)
                _ = try receiveLine()
                if size == 0 { return content }
            }
        }
        return try receive(count: fields["content-length"].flatMap { Int($0) } ?? 0)
    }

    private func receiveLine() throws(BenchFailure) -> String {
        var line: [UInt8] = []
        while !line.ends(with: "\r\n") {
            guard let byte = try next() else { throw BenchFailure("a chunk's line was cut") }
            line.append(byte)
        }
        return String(decoding: line.dropLast(2), as: UTF8.self)
    }

    private func receive(count: Int) throws(BenchFailure) -> [UInt8] {
        var content: [UInt8] = []
        while content.count < count {
            guard let byte = try next() else { throw BenchFailure("a response was cut") }
            content.append(byte)
        }
        return content
    }

    /// The next byte that comes; nil at the end of the connection.
    private func next() throws(BenchFailure) -> UInt8? {
        if unread.isEmpty {
            let count = read(socket, &buffer, buffer.count)
            if count < 0 && errno == ECONNRESET { return nil }
            guard count >= 0 else { throw BenchFailure(call: "read", on: "a response") }
            if count == 0 { return nil }
            unread = 0..<count
        }
        defer { unread = (unread.lowerBound + 1)..<unread.upperBound }
        return buffer[unread.lowerBound]
    }
}

extension [UInt8] {
    /// Whether the last bytes are those of `text`.
    fileprivate func ends(with text: StaticString) -> Bool {
        guard count >= text.utf8CodeUnitCount else { return false }
        let start = count - text.utf8CodeUnitCount
        return text.withUTF8Buffer { buffer in
            for index in 0..<buffer.count where self[start + index] != buffer[index] {
                return false
            }
            return true
        }
    }
}
