// The state that a handle keeps between requests, and content read from the gateway's memory.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import Synchronization
import Testing

@testable import SpoolgateUpstream

@Suite("A kept handle")
struct KeptHandleTests {
    private enum Kind: CaseIterable {
        case none
        case bytes
        case held
        case file
        case stream
        case chunked

        func content(_ length: Int64) throws -> UpstreamContent {
            switch self {
            case .none: .none
            case .bytes: .bytes((0..<Int(length)).map { UInt8($0 % 251) })
            case .held: .held(try buffer(length))
            case .file: pattern(length)
            case .stream: patternStream(length, piece: 7000, saysLength: true)
            case .chunked: patternStream(length, piece: 7000, saysLength: false)
            }
        }
    }

    @Test("nothing of one request remains for the next, in any order")
    func sequence() throws {
        let origin = try LoopbackOrigin()
        let upstream = try upstream(origin.base)
        let kinds = Kind.allCases.flatMap { one in Kind.allCases.flatMap { [one, $0] } }
        for (number, kind) in kinds.enumerated() {
            let length: Int64 = [20, 65_535, 65_536, 131_072][number % 4]
            let method = ["PUT", "POST", "REPORT"][number % 3]
            let content = try kind.content(length)
            #expect(try upstream.attempt(method, "/\(number)", content: content) == .responded)
            let request = try #require(origin.requests.last)
            let expected = kind == .none ? 0 : Int(length)
            #expect(request.line == "\(method) /\(number) HTTP/1.1")
            #expect(request.content.count == expected, "\(kind) in request \(number)")
            #expect(isPattern(request.content))
            #expect(request.values("Transfer-Encoding") == (kind == .chunked ? ["chunked"] : []))
            #expect(request.values("Expect").isEmpty)
            #expect(request.values("Content-Type").isEmpty)
            if number % 5 == 0 {
                #expect(try upstream.attempt("HEAD", "/h") == .responded)
                #expect(origin.requests.last?.line == "HEAD /h HTTP/1.1")
                #expect(origin.requests.last?.contentLength == 0)
            }
        }
    }

    /// libcurl counts retries over the life of a handle's options and stops at the sixth.
    @Test("a request is sent once more however often that happened before")
    func manyRepetitions() throws {
        let origin = try LoopbackOrigin { connection in
            _ = try connection.receiveRequest()
            try connection.response("200 OK")
            // Closes on the second request.
            _ = try connection.receiveRequest()
        }
        let upstream = try upstream(origin.base)
        for round in 0..<10 {
            let outcome = try upstream.attempt("PUT", content: .held(try buffer(60_000)))
            #expect(outcome == .responded, "round \(round): \(outcome)")
        }
        #expect(origin.connectionCount == 10)
        #expect(origin.requests.count == 19)
        #expect(origin.requests.allSatisfy { isPattern($0.content) && $0.content.count == 60_000 })
    }

    @Test("content in memory leaves with the head, and no cork delays its end")
    func oneSegment() throws {
        let firsts = Mutex<[Int]>([])
        let origin = try LoopbackOrigin { connection in
            while true {
                let first = connection.receive(upTo: 1 << 20)
                guard let end = Data(first).range(of: Data("\r\n\r\n".utf8)) else { return }
                firsts.withLock { $0.append(first.count - end.upperBound) }
                let head = String(decoding: first[..<end.lowerBound], as: UTF8.self)
                let said = head.split(separator: "Content-Length: ").last?.prefix { $0.isNumber }
                var left = (said.flatMap { Int($0) } ?? 0) - (first.count - end.upperBound)
                while left > 0 {
                    let part = connection.receive(upTo: 1 << 20)
                    guard !part.isEmpty else { return }
                    left -= part.count
                }
                try connection.response("200 OK")
            }
        }
        let upstream = try upstream(origin.base)
        var times: [Duration] = []
        for round in 0..<20 {
            let length: Int64 = [10, 65_535, 65_536, 131_072][round % 4]
            let content = UpstreamContent.held(try buffer(length))
            let began = ContinuousClock.now
            #expect(try upstream.attempt("PUT", content: content) == .responded)
            times.append(ContinuousClock.now - began)
        }
        let found = firsts.withLock { $0 }
        #expect(found.count == times.count)
        // A cork holds a segment for at most 200 ms, then the header section is sent alone.
        for (first, time) in zip(found, times) where time < .milliseconds(200) {
            #expect(first > 0, "\(found) in \(times)")
        }
        #expect(times.sorted()[times.count / 2] < .milliseconds(200), "\(times)")
    }
}

/// The pattern's first `length` bytes.
private func buffer(_ length: Int64) throws -> ContentBuffer {
    let buffer = try ContentBuffer(capacity: 1 << 20)
    buffer.fill { free in
        for index in 0..<Int(length) { free[index] = UInt8(index % 251) }
        return Int(length)
    }
    return buffer
}
