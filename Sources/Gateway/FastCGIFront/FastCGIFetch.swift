// A FastCGI client for commands that query a daemon.
//
// Invariant: an incomplete response is an error.

package import SpoolgatePosix

/// A request to a responder on a Unix socket.
package struct FastCGIFetch {
    /// The response.
    package struct Response: Sendable {
        package var status: Int
        package var content: [UInt8]
    }

    private static let maximumBytes = 16 << 20

    private let path: String
    private let timeout: Duration

    /// Creates a client for the socket at `path`; `timeout` limits the wait for the response.
    package init(path: String, timeout: Duration) {
        self.path = path
        self.timeout = timeout
    }

    /// Sends a GET request for the path and query `target`.
    ///
    /// - Throws: `SystemError` if the connection fails, or no complete response arrives in time.
    package func get(_ target: String) throws(SystemError) -> Response {
        let connection = try Connection.open(unix: path)
        defer { connection.close() }
        connection.setReceiveTimeout(timeout)
        connection.setSendTimeout(timeout)
        guard connection.send(Self.records(target)), let bytes = receive(on: connection),
            let response = Self.response(bytes)
        else {
            throw SystemError(
                call: "response from",
                subject: "\(path) to GET \(target)",
                errno: SystemError.lost
            )
        }
        return response
    }

    private static func records(_ target: String) -> [UInt8] {
        let parameters = [
            ("REQUEST_METHOD", "GET"), ("REQUEST_URI", target), ("SERVER_PROTOCOL", "HTTP/1.1"),
        ]
        var pairs: [UInt8] = []
        for (name, value) in parameters {
            // Each name and value is shorter than 128 bytes, so its length takes one byte (section 3.4).
            pairs += [UInt8(name.utf8.count), UInt8(clamping: min(127, value.utf8.count))]
            pairs += Array(name.utf8) + value.utf8.prefix(127)
        }
        return RecordHeader.record(
            RecordType.beginRequest,
            1,
            [0, UInt8(RequestBeginning.responder), 0, 0, 0, 0, 0, 0]
        ) + RecordHeader.record(RecordType.parameters, 1, pairs)
            + RecordHeader.record(RecordType.parameters, 1, [])
            + RecordHeader.record(RecordType.content, 1, [])
    }

    private func receive(on connection: Connection) -> [UInt8]? {
        let deadline = Deadline.after(timeout)
        var (parser, header) = (RecordParser(), RecordHeader(type: 0, id: 0, count: 0))
        var response: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 64 << 10)
        while !deadline.hasPassed, response.count < Self.maximumBytes {
            var isEnded = false
            let arrival = buffer.withUnsafeMutableBytes { room -> Connection.Arrival in
                let arrival = connection.receive(into: room, waits: true)
                guard case .bytes(let count) = arrival else { return arrival }
                var rest = UnsafeRawBufferPointer(rebasing: room[..<count])
                while let piece = parser.next(&rest) {
                    switch piece {
                    case .header(let found):
                        header = found
                        isEnded = isEnded || found.type == RecordType.endRequest
                    case .content(let bytes):
                        if header.type == RecordType.response { response += bytes }
                    case .malformed: return .failed
                    }
                }
                return arrival
            }
            if isEnded { return response }
            guard case .bytes = arrival else { return nil }
        }
        return nil
    }

    /// Separates the head from the content (RFC 3875 section 6.3); nil if there is no complete head.
    private static func response(_ bytes: [UInt8]) -> Response? {
        guard let end = bytes.firstRange(of: Array("\r\n\r\n".utf8)) else { return nil }
        let head = String(decoding: bytes[..<end.lowerBound], as: UTF8.self)
        let status = head.split(separator: "\r\n")
            .first { $0.lowercased().hasPrefix("status: ") }
            .flatMap { Int($0.dropFirst(8).prefix(3)) }
        return Response(status: status ?? 200, content: Array(bytes[end.upperBound...]))
    }
}
