// An upstream that passes the moments of a delivery and keeps the contents.
//
// A target's query has its orders: `response`, the bytes of the response's content; `status`, if not 201; and `pace`, the
// microseconds of pause after each part of content.

import Foundation
import SpoolgateTestSupport

extension LoopbackOrigin {
    convenience init(passing moments: Moments) throws {
        try self.init { connection in
            while var request = try connection.receiveHead() {
                moments.pass(.delivering)
                let target = request.target
                let pace = Self.order("pace", of: target)
                try connection.receiveContent(of: &request) { _ in
                    moments.pass(.deliveringContent)
                    if pace > 0 { usleep(UInt32(pace)) }
                }
                moments.pass(.delivered)
                let content = Self.response(to: target)
                let status = Self.order("status", of: target)
                try connection.send(
                    "HTTP/1.1 \(status == 0 ? 201 : status) Said\r\nX-Upstream: recording\r\n"
                        + "Content-Length: \(content.count)\r\n\r\n"
                )
                try connection.send([UInt8](content.prefix(content.count / 2)))
                moments.pass(.respondingTo)
                try connection.send([UInt8](content.suffix(from: content.count / 2)))
                connection.noteReply()
                moments.pass(.responded)
            }
        }
    }

    /// The contents for a target, in order, complete or not.
    func contents(to target: String) -> [Data] { requests(to: target).map { Data($0.content) } }

    static func response(to target: String) -> Data {
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
}
