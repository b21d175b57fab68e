// Content with bytes before and after a file: exact, and read in few large parts.

import Foundation
import SpoolgateTestSupport
import Synchronization
import Testing

@testable import SpoolgateUpstream

@Suite("Framed content")
struct FramedContentTests {
    @Test(
        "every division into buffers gives the same bytes",
        arguments: [(0, 0, 1), (1, 0, 0), (3, 5, 2), (0, 7, 4), (4, 7, 0), (10, 1, 10)]
    )
    func everyCut(before: Int, middle: Int, after: Int) throws {
        let whole = before + middle + after
        for size in 1...(whole + 1) {
            let source = try #require(
                ContentSource(
                    framedPattern(before: before, middle: Int64(middle), after: after)
                )
            )
            #expect(source.length == Int64(whole))
            var bytes: [UInt8] = []
            var part = [UInt8](repeating: 0xee, count: size)
            while true {
                let count = try part.withUnsafeMutableBytes { try source.read(into: $0) }
                if count == 0 { break }
                // Each part becomes a separate write, so it must fill the buffer.
                #expect(count == min(size, whole - bytes.count))
                bytes += part[..<count]
            }
            #expect(bytes.count == whole)
            #expect(isPattern(bytes))
        }
    }

    @Test("a frame around nothing is no content")
    func empty() {
        #expect(ContentSource(framedPattern(before: 0, middle: 0, after: 0)) == nil)
    }

    @Test("the file is read in parts as large as without a frame, and never beyond its end")
    func partSizes() throws {
        let parts = Mutex<[Int]>([])
        let length: Int64 = 9_000_000
        let origin = try LoopbackOrigin()
        let content = UpstreamContent.framed(
            before: Array("head".utf8),
            length: length,
            read: { buffer, position in
                #expect(position + Int64(buffer.count) <= length)
                parts.withLock { $0.append(buffer.count) }
                return buffer.count
            },
            after: Array("tail".utf8)
        )
        let outcome = try upstream(origin.base).attempt("POST", content: content)
        #expect(outcome == .responded)
        #expect(parts.withLock { $0.count } <= 6, "\(parts.withLock { $0 })")
        #expect(parts.withLock { $0.reduce(0, +) } == Int(length))
        let request = try #require(origin.requests.first)
        #expect(request.values("Content-Length") == ["\(length + 8)"])
        #expect(request.content.starts(with: Array("head".utf8)))
        #expect(request.content.suffix(4).elementsEqual("tail".utf8))
    }

    @Test("on a closed kept connection, small content is sent again whole")
    func sentAgain() throws {
        let origin = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                try connection.response("200 OK")
                guard request.number > 0 else {
                    _ = try connection.receiveRequest()
                    return
                }
            }
        }
        let upstream = try upstream(origin.base)
        let first = try UpstreamRequest("GET")
        #expect(upstream.attempt(first, sink: RecordingSink()) == .responded)
        #expect(
            try upstream.attempt(
                "PUT",
                content: framedPattern(before: 100, middle: 29_850, after: 50)
            ) == .responded
        )
        let contents = origin.requests.dropFirst().map(\.content)
        #expect(contents.count == 2)
        #expect(contents.allSatisfy { $0.count == 30_000 && isPattern($0) })
    }
}
