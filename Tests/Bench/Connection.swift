// A kept connection to a server, and the content it sends.
//
// It follows nothing, retries nothing, and sends content only from one shared block. One thread at a
// time.

import Glibc
import SpoolgateTestSupport

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

    init(
        _ method: String,
        _ target: String,
        _ fields: [(name: String, value: String)] = [],
        length: Int64? = nil
    ) {
        (self.method, self.target, self.fields, self.length) = (method, target, fields, length)
    }

    /// The head as it goes over the wire.
    var bytes: [UInt8] {
        var text = "\(method) \(target) HTTP/1.1\r\nHost: bench.test\r\n"
        for field in fields { text += "\(field.name): \(field.value)\r\n" }
        if let length { text += "Content-Length: \(length)\r\n" }
        return Array((text + "\r\n").utf8)
    }
}

extension WireClient.Answer {
    /// The field as a number.
    func number(_ name: String) -> Int64? { self[name].flatMap { Int64($0) } }

    /// The path of `Location`, whether that is absolute or not.
    var locationPath: String? {
        guard let location = self["location"] else { return nil }
        guard let scheme = location.firstRange(of: "://") else { return location }
        let rest = location[scheme.upperBound...]
        return rest.firstIndex(of: "/").map { String(rest[$0...]) }
    }
}

/// One connection to a server, kept for request after request.
final class Connection {
    private let client: WireClient
    /// How many interim responses have told where an upload is.
    private(set) var toldLocations = 0

    /// Connects.
    init(to address: SocketAddress) throws {
        client = try WireClient(to: address, patience: 120)
    }

    /// Sends a request with `request.length` bytes of content and reads the final response.
    ///
    /// - Throws: `BenchFailure` if the connection breaks before a final response.
    func exchange(_ request: Request) throws -> WireClient.Answer {
        let name = "\(request.method) \(request.target)"
        let sent = request.bytes.withUnsafeBytes { client.send($0) }
        let complete = sent && send(content: request.length ?? 0)
        let reason = complete ? 0 : errno
        do {
            while true {
                let answer = try client.readAny(head: request.method == "HEAD")
                if answer.status >= 200 { return answer }
                if answer.locationPath != nil { toldLocations += 1 }
            }
        } catch {
            // A server that does not want the content may have answered.
            guard complete else { throw BenchFailure(call: "send", on: name, code: reason) }
            throw BenchFailure("\(name): \(error)")
        }
    }

    /// Sends a request and requires `status`.
    ///
    /// - Parameters:
    ///   - request: what is sent.
    ///   - isTold: whether a 104 must have told where the upload is.
    ///   - status: the statuses that the final response may have.
    /// - Returns: the final response.
    /// - Throws: `BenchFailure` where it is another.
    @discardableResult
    func exchange(
        _ request: Request,
        isTold: Bool = false,
        expecting status: Int...
    ) throws -> WireClient.Answer {
        let before = toldLocations
        let response = try exchange(request)
        let name = "\(request.method) \(request.target)"
        guard status.contains(response.status) else {
            throw BenchFailure(
                "\(name) was answered \(response.status), not "
                    + "\(status.map(String.init).joined(separator: " or ")): "
                    + response.text.prefix(200)
            )
        }
        guard !isTold || toldLocations > before else {
            throw BenchFailure("\(name): no 104 told where the upload is")
        }
        return response
    }

    private func send(content length: Int64) -> Bool {
        Content.block.withUnsafeBytes { block in
            var rest = length
            while rest > 0 {
                let part = UnsafeRawBufferPointer(rebasing: block.prefix(Int(min(rest, 1 << 30))))
                guard client.send(part) else { return false }
                rest -= Int64(part.count)
            }
            return true
        }
    }
}
