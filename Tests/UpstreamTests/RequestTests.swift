import Foundation
import HTTPTypes
import SpoolgateTestSupport
import Synchronization
import Testing

@testable import SpoolgateUpstream

@Suite("A request on the wire")
struct RequestTests {
    private func sent(_ request: UpstreamRequest, base: String = "") throws
        -> LoopbackOrigin.Request
    {
        let origin = try LoopbackOrigin()
        let sink = RecordingSink()
        let outcome = try upstream(origin.base + base).attempt(request, sink: sink)
        #expect(outcome == .responded)
        return try #require(origin.requests.first)
    }

    @Test("target bytes are sent unchanged, below the base's path")
    func target() throws {
        let target = "/a/../b//%2e%2F;x=1?q=%20&\u{e9}[]{}|"
        let request = try sent(try UpstreamRequest("GET", target), base: "/app/")
        #expect(request.line.hasPrefix("GET /app/a/../b//%2e%2F;x=1?q=%20&"))
        #expect(request.line.hasSuffix("[]{}| HTTP/1.1"))
        let star = try sent(try UpstreamRequest("OPTIONS", "*"), base: "/app")
        #expect(star.line == "OPTIONS * HTTP/1.1")
    }

    @Test(
        "field lines are sent one by one, in order, empty ones and high bytes intact, and no others"
    )
    func fields() throws {
        var fields = HTTPFields()
        let lines: [(String, [UInt8])] = [
            ("Host", Array("public.example:8443".utf8)), ("X-A", Array("1".utf8)),
            ("x-b", []), ("X-A", [0x63, 0x61, 0x66, 0xe9, 0xff]), ("X-a", Array("3; y, z".utf8)),
        ]
        for (name, value) in lines {
            fields.append(HTTPField(name: try #require(.init(name)), lenientValue: value))
        }
        let request = try sent(try UpstreamRequest("GET", "/", fields))
        #expect(
            request.fieldLines == [
                "Host: public.example:8443", "X-A: 1", "x-b:", "X-A: caf\u{e9}\u{ff}",
                "X-a: 3; y, z",
            ]
        )
    }

    @Test("without a Host the base's authority is used")
    func host() throws {
        let origin = try LoopbackOrigin()
        #expect(try upstream(origin.base).attempt("GET", "/") == .responded)
        #expect(origin.requests.first?.fieldLines == ["Host: 127.0.0.1:\(origin.port)"])
    }

    @Test(
        "empty content is framed as the method requires",
        arguments: [
            ("GET", []), ("HEAD", []), ("DELETE", []), ("OPTIONS", []), ("PROPFIND", []),
            ("POST", ["0"]), ("PUT", ["0"]), ("PATCH", ["0"]),
        ]
    )
    func noContent(method: String, lengths: [String]) throws {
        for content in [UpstreamContent.none, .bytes([]), pattern(0)] {
            let request = try sent(
                try UpstreamRequest(method, "/", [.contentLength: "7"], content: content)
            )
            #expect(request.line.hasPrefix("\(method) "))
            #expect(request.values("Content-Length") == lengths)
            #expect(request.values("Transfer-Encoding").isEmpty)
            #expect(request.fieldLines.count == 1 + lengths.count)
        }
    }

    @Test(
        "content of every kind and size arrives whole, framed, and without added fields",
        arguments: ["POST", "PUT", "PATCH", "DELETE", "REPORT", "GET"],
        [Int64(1), 65_535, 65_536, 300_000]
    )
    func content(method: String, length: Int64) throws {
        let bytes = (0..<Int(length)).map { UInt8($0 % 251) }
        let kinds: [(UpstreamContent, Bool)] = [
            (.bytes(bytes), true), (pattern(length), true),
            (framedPattern(before: 1, middle: length - 1, after: 0), true),
            (framedPattern(before: 0, middle: 0, after: Int(length)), true),
            (patternStream(length, piece: 7000, saysLength: true), true),
            (patternStream(length, piece: 7000, saysLength: false), false),
        ]
        for (content, saysLength) in kinds {
            let request = try sent(try UpstreamRequest(method, "/", content: content))
            #expect(request.content.count == Int(length))
            #expect(isPattern(request.content))
            #expect(
                Array(request.fieldLines.dropFirst())
                    == [saysLength ? "Content-Length: \(length)" : "Transfer-Encoding: chunked"]
            )
        }
    }

    @Test("a stream of unknown length and no bytes is an empty chunked content")
    func emptyStream() throws {
        let request = try sent(
            try UpstreamRequest("POST", content: .stream(length: nil) { _ in 0 })
        )
        #expect(request.values("Transfer-Encoding") == ["chunked"])
        #expect(request.contentLength == 0)
    }

    @Test(
        "bytes that would split the request are never sent",
        arguments: ["/a b", "/a\r\nX: y", "", "/\u{0}"]
    )
    func smuggling(target: String) throws {
        let origin = try LoopbackOrigin()
        let outcome = try upstream(origin.base).attempt("GET", target)
        #expect(outcome.isNotReached)
        #expect(origin.connectionCount == 0)
    }

    @Test("the head and the first content leave in one segment, on new and kept connections")
    func oneSegment() throws {
        let firsts = Mutex<[Int]>([])
        let origin = try LoopbackOrigin { connection in
            while true {
                let first = connection.receive(upTo: 1 << 20)
                guard !first.isEmpty else { return }
                let end = Data(first).range(of: Data("\r\n\r\n".utf8))
                firsts.withLock { $0.append(end.map { first.count - $0.upperBound } ?? -1) }
                // Only the last byte of the content is 0xff.
                var last = first.last
                while last != 0xff, last != nil { last = connection.receive().last }
                try connection.response("200 OK")
            }
        }
        let upstream = try upstream(origin.base)
        let sizes: [Int64] = [10, 40_000, 65_536, 100_000, 3_000_000]
        let kinds = [Marked.file, .stream, .framed]
        var times: [Duration] = []
        for round in 0..<6 {
            for size in sizes {
                let content = marked(size, as: kinds[round % 3])
                let began = ContinuousClock.now
                let outcome = try upstream.attempt("PUT", content: content)
                #expect(outcome == .responded)
                times.append(ContinuousClock.now - began)
            }
        }
        let found = firsts.withLock { $0 }
        #expect(found.count == times.count)
        // A cork holds a segment for at most 200 ms, then the header section is sent alone.
        for (first, time) in zip(found, times) where time < .milliseconds(200) {
            #expect(first > 0, "\(found) in \(times)")
        }
        // A forgotten cork would delay every request that long.
        #expect(times.sorted()[times.count / 2] < .milliseconds(200), "\(times)")
    }

    private enum Marked {
        case file
        case stream
        case framed
    }

    private func marked(_ length: Int64, as kind: Marked) -> UpstreamContent {
        let read: (UnsafeMutableRawBufferPointer, Int64) -> Int = { buffer, position in
            let count = Int(min(Int64(buffer.count), length - position))
            for index in 0..<count {
                buffer[index] = position + Int64(index) == length - 1 ? 0xff : 0x61
            }
            return count
        }
        switch kind {
        case .file:
            return .file(descriptor: nil, length: length, read: read)
        case .framed:
            return .framed(before: [0x61, 0x61], length: length - 3, read: read, after: [0xff])
        case .stream:
            break
        }
        var position: Int64 = 0
        return .stream(length: length) { buffer in
            let count = read(buffer, position)
            position += Int64(count)
            return count
        }
    }
}
