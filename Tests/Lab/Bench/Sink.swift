// The upstream of the measurements, which counts and discards content.
//
// It is a separate process (`spoolgate-bench sink`), so that its processor time is not added to the servers'. It
// responds with 200 and the number of bytes it counted, or with the length of the file that the request names in
// X-Body-File. It uses one thread per connection, and responds with 411 without Content-Length.

import Glibc
import SpoolgateTestSupport

enum Sink {
    /// Listens on a port that the system chooses and writes to `output`, and serves until killed.
    static func serve(output: Int32) throws -> Never {
        let origin = try LoopbackOrigin(remembers: false) { connection in
            while let head = try connection.receiveHead(), try response(head, on: connection) {}
        }
        let line = Array("\(origin.port)\n".utf8)
        _ = write(output, line, line.count)
        close(output)
        while true { _ = Glibc.pause() }
    }

    /// Receives a request's content and responds; false if the connection must be closed.
    private static func response(
        _ head: LoopbackOrigin.Request,
        on connection: OriginConnection
    ) throws -> Bool {
        let length = head.values("Content-Length").last.flatMap { Int($0) } ?? 0
        let isFramed = head.values("Transfer-Encoding").isEmpty
        if !head.values("Expect").isEmpty { try connection.send("HTTP/1.1 100 Continue\r\n\r\n") }
        var counted: Int64
        if let file = head.values("X-Body-File").last, !file.isEmpty {
            counted = (try? fileLength(file)) ?? -1  // A missing file is reported as -1 bytes.
        } else {
            counted = Int64(connection.discard(length))
        }
        try connection.response(
            isFramed ? "200 OK" : "411 Length Required",
            fields: ["Content-Type: text/plain"],
            content: "\(counted)\n"
        )
        return counted >= Int64(length) && isFramed
    }
}
