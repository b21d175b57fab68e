// The upstream of the measurements: takes requests, counts their content, throws it away.
//
// A process of its own (`spoolgate-bench sink`), so that its processor time is not the servers'.
// It answers 200 with the number of bytes it has counted, or, for a request that names a file in
// X-Body-File, with that file's length. One thread per connection; Content-Length only, which is
// all that nginx and spoolgate send here; anything else is answered 411.

import Glibc
import SpoolgateTestSupport

/// The sink's life.
enum Sink {
    /// Listens on a port the system chooses, writes its number to `output`, serves until ended.
    static func serve(output: Int32) throws -> Never {
        let origin = try LoopbackOrigin(remembers: false) { connection in
            while let head = try connection.receiveHead(), try answer(head, on: connection) {}
        }
        let line = Array("\(origin.port)\n".utf8)
        _ = write(output, line, line.count)
        close(output)
        while true { _ = Glibc.pause() }
    }

    /// Takes a request's content and answers it.
    ///
    /// - Returns: false when the connection must end.
    private static func answer(
        _ head: LoopbackOrigin.Request,
        on connection: OriginConnection
    ) throws -> Bool {
        let length = head.values("Content-Length").last.flatMap { Int($0) } ?? 0
        let isFramed = head.values("Transfer-Encoding").isEmpty
        if !head.values("Expect").isEmpty { try connection.send("HTTP/1.1 100 Continue\r\n\r\n") }
        var counted: Int64
        if let file = head.values("X-Body-File").last, !file.isEmpty {
            counted = (try? fileLength(file)) ?? -1  // A missing file is told as -1 bytes.
        } else {
            counted = Int64(connection.discard(length))
        }
        try connection.answer(
            isFramed ? "200 OK" : "411 Length Required",
            fields: ["Content-Type: text/plain"],
            content: "\(counted)\n"
        )
        return counted >= Int64(length) && isFramed
    }
}
