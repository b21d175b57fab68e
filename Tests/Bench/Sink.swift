// The upstream of the measurements: takes requests, counts their content, throws it away.
//
// A process of its own (`spoolgate-bench sink`), so that its processor time is not the servers'.
// It answers 200 with the number of bytes it has counted, or, for a request that names a file in
// X-Body-File, with that file's length. One thread per connection; Content-Length only, which is
// all that nginx and spoolgate send here; anything else is answered 411.

import Glibc

/// The sink's life.
enum Sink {
    /// Listens on a port the system chooses, writes its number to `output`, serves until ended.
    static func serve(output: Int32) throws(BenchFailure) -> Never {
        signal(SIGPIPE, SIG_IGN)
        let (listener, port) = try listenSocket(on: .port(0))
        let line = Array("\(port)\n".utf8)
        _ = write(output, line, line.count)
        close(output)
        while true {
            let socket = accept(listener, nil, nil)
            guard socket >= 0 else {
                if errno == EINTR || errno == ECONNABORTED { continue }
                throw BenchFailure(call: "accept", on: "the sink")
            }
            var on: Int32 = 1
            setsockopt(socket, Int32(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(4))
            try startThread {
                var peer = SinkConnection(socket)
                while peer.serveRequest() {}
                close(socket)
            }
        }
    }
}

/// One connection to the sink.
private struct SinkConnection {
    private let socket: Int32
    private var buffer = [UInt8](repeating: 0, count: 256 << 10)
    /// Bytes of `buffer` that have come and are not yet used.
    private var unread = 0..<0

    init(_ socket: Int32) {
        self.socket = socket
    }

    /// Takes one request and answers it.
    ///
    /// - Returns: false when the connection has ended, or must end.
    mutating func serveRequest() -> Bool {
        guard let head = receiveHead() else { return false }
        let text = String(decoding: head, as: UTF8.self)
        var length: Int64 = 0
        var answer = "200 OK"
        var file: String?
        for line in text.split(separator: "\r\n").dropFirst() {
            guard let colon = line.firstIndex(of: ":") else { continue }
            let value = String(line[line.index(after: colon)...].drop { $0 == " " })
            switch line[..<colon].lowercased() {
            case "content-length": length = Int64(value) ?? 0
            case "transfer-encoding": answer = "411 Length Required"
            case "x-body-file": file = value
            case "expect": send("HTTP/1.1 100 Continue\r\n\r\n")
            default: break
            }
        }
        var counted: Int64 = 0
        if let file, !file.isEmpty {
            counted = (try? fileLength(file)) ?? -1  // A missing file is told as -1 bytes.
        } else {
            counted = discard(length)
        }
        let content = "\(counted)\n"
        return send(
            "HTTP/1.1 \(answer)\r\nContent-Type: text/plain\r\n"
                + "Content-Length: \(content.utf8.count)\r\n\r\n\(content)"
        )
            && counted == max(counted, length) && answer == "200 OK"
    }

    /// The bytes of the next head, or nil at the end of the connection.
    private mutating func receiveHead() -> [UInt8]? {
        var head: [UInt8] = []
        var matched = 0
        let end = Array("\r\n\r\n".utf8)
        while true {
            if unread.isEmpty && !fill() { return nil }
            for index in unread {
                let byte = buffer[index]
                head.append(byte)
                matched = byte == end[matched] ? matched + 1 : (byte == end[0] ? 1 : 0)
                if matched == end.count {
                    unread = (index + 1)..<unread.upperBound
                    return head
                }
            }
            unread = 0..<0
            if head.count > 64 << 10 { return nil }
        }
    }

    /// Reads and counts `length` bytes of content; fewer if the connection ends.
    private mutating func discard(_ length: Int64) -> Int64 {
        var counted: Int64 = 0
        while counted < length {
            if unread.isEmpty && !fill() { return counted }
            let taken = min(Int64(unread.count), length - counted)
            unread = (unread.lowerBound + Int(taken))..<unread.upperBound
            counted += taken
        }
        return counted
    }

    private mutating func fill() -> Bool {
        let count = read(socket, &buffer, buffer.count)
        guard count > 0 else { return false }
        unread = 0..<count
        return true
    }

    @discardableResult
    private func send(_ text: String) -> Bool {
        Array(text.utf8).withUnsafeBytes { writeAll(socket, $0) }
    }
}
