// A kept-alive connection to a server, and the content it sends.
//
// It follows no redirect, retries nothing, and serves one thread at a time.

import Glibc
import SpoolgateTestSupport

/// All clients' content: one block, repeated.
enum Content {
    static let blockLength = 256 << 10
    /// The values 0 to 250, repeated.
    static let block: [UInt8] = (0..<blockLength).map { UInt8($0 % 251) }
}

struct Request {
    var method: String
    var target: String
    var fields: [(name: String, value: String)] = []
    /// The bytes of content; nil: no content and no Content-Length.
    var length: Int64?

    init(
        _ method: String,
        _ target: String,
        _ fields: [(name: String, value: String)] = [],
        length: Int64? = nil
    ) {
        (self.method, self.target, self.fields, self.length) = (method, target, fields, length)
    }

    var bytes: [UInt8] {
        var text = "\(method) \(target) HTTP/1.1\r\nHost: bench.test\r\n"
        for field in fields { text += "\(field.name): \(field.value)\r\n" }
        if let length { text += "Content-Length: \(length)\r\n" }
        return Array((text + "\r\n").utf8)
    }
}

extension WireClient.Answer {
    func number(_ name: String) -> Int64? { self[name].flatMap { Int64($0) } }

    /// The path of an absolute or relative `Location`.
    var locationPath: String? {
        guard let location = self["location"] else { return nil }
        guard let scheme = location.firstRange(of: "://") else { return location }
        let rest = location[scheme.upperBound...]
        return rest.firstIndex(of: "/").map { String(rest[$0...]) }
    }
}

final class Connection {
    private let client: WireClient
    /// The number of interim responses with a `Location`.
    private(set) var toldLocations = 0

    init(to address: SocketAddress) throws {
        client = try WireClient(to: address, patience: 120)
    }

    /// Sends a request with `request.length` bytes of content and reads the final response.
    func exchange(_ request: Request) throws -> WireClient.Answer {
        let name = "\(request.method) \(request.target)"
        let sent = request.bytes.withUnsafeBytes { client.send($0) }
        let complete = sent && send(content: request.length ?? 0)
        let reason = complete ? 0 : errno
        do {
            while true {
                let response = try client.readAny(head: request.method == "HEAD")
                if response.status >= 200 { return response }
                if response.locationPath != nil { toldLocations += 1 }
            }
        } catch {
            // A server that refuses the content may have responded.
            guard complete else { throw BenchFailure(call: "send", on: name, code: reason) }
            throw BenchFailure("\(name): \(error)")
        }
    }

    /// Sends a request, and requires one of the statuses and, if `isReported`, a 104 with a `Location`.
    @discardableResult
    func exchange(
        _ request: Request,
        isReported: Bool = false,
        expecting status: Int...
    ) throws -> WireClient.Answer {
        let before = toldLocations
        let response = try exchange(request)
        let name = "\(request.method) \(request.target)"
        guard status.contains(response.status) else {
            throw BenchFailure(
                "\(name) received \(response.status), not "
                    + "\(status.map(String.init).joined(separator: " or ")): "
                    + response.text.prefix(200)
            )
        }
        guard !isReported || toldLocations > before else {
            throw BenchFailure("\(name): no 104 had a Location")
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
