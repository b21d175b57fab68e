import Foundation
import SpoolgateTestSupport
import Synchronization
import Testing

@testable import SpoolgateUpstream

@Suite("Deadlines and content")
struct DeadlineTests {
    @Test("an upstream that stops reading runs into the stall deadline", arguments: [true, false])
    func stalledSending(isFile: Bool) throws {
        let origin = try LoopbackOrigin(receiveBuffer: 8192) { connection in
            _ = try connection.receiveHead()
            connection.waitWithoutReading()
        }
        let content =
            isFile
            ? pattern(50_000_000) : patternStream(50_000_000, piece: 65_536, saysLength: false)
        let began = ContinuousClock.now
        let outcome = try upstream(origin.base, stall: .milliseconds(300)).attempt(
            "PUT",
            content: content
        )
        #expect(outcome.isIndeterminate && outcome.timedOut)
        #expect(outcome.reason.contains("timeouts.stall"), "\(outcome)")
        #expect(outcome.reason.contains("300ms"))
        #expect(ContinuousClock.now - began < .seconds(20))
    }

    // Long because each of its rows waits for a deadline.
    @Test(
        "an upstream that becomes silent runs into the response deadline",
        arguments: [
            ("", "no response"), ("HTTP/1.1 100 Continue\r\n\r\n", "no response"),
            ("HTTP/1.1 200 OK\r\nContent-", "no response"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "no further part of"),
        ],
        [UpstreamContent.Kind.none, .small, .large, .stream]
    )
    func silent(said: (text: String, word: String), kind: UpstreamContent.Kind) throws {
        let (text, word) = said
        let origin = try LoopbackOrigin { connection in
            _ = try connection.receiveRequest()
            try connection.send(text)
            connection.waitForEnd()
        }
        let outcome = try eventually("the first bytes come in time, on a busy machine") {
            let outcome = try upstream(origin.base, response: .milliseconds(200)).attempt(
                "POST",
                content: kind.content
            )
            #expect(outcome.isIndeterminate && outcome.timedOut)
            return outcome.reason.contains(word) ? outcome : nil
        }
        #expect(outcome.reason.contains("200ms"))
    }

    @Test("a slow upstream that continues is never cut")
    func slowButAlive() throws {
        let origin = try LoopbackOrigin(receiveBuffer: 16_384) { connection in
            _ = try connection.receiveHead()
            var left = 3_000_000
            while left > 0 {
                let part = connection.receive(upTo: 200_000)
                guard !part.isEmpty else { return }
                left -= part.count
                // Each pause is well within the deadline; together they far exceed it.
                if left % 3 == 0 { usleep(40_000) }
            }
            try connection.send("HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n")
            for _ in 0..<24 {
                usleep(150_000)
                try connection.send("x")
            }
        }
        let sink = RecordingSink()
        let outcome = try upstream(
            origin.base,
            stall: .seconds(3),
            response: .seconds(3)
        ).attempt("POST", content: pattern(3_000_000), sink: sink)
        #expect(outcome == .responded, "\(outcome)")
        #expect(sink.text == String(repeating: "x", count: 24))
    }

    @Test("a slow client's stream is not the upstream's stall")
    func slowStream() throws {
        let origin = try LoopbackOrigin()
        var left = 2
        let content = UpstreamContent.stream(length: nil) { buffer in
            guard left > 0 else { return 0 }
            left -= 1
            usleep(1_200_000)
            buffer[0] = 0x61
            return 1
        }
        let outcome = try upstream(origin.base, stall: .seconds(1)).attempt(
            "POST",
            content: content
        )
        #expect(outcome == .responded, "\(outcome)")
        #expect(origin.requests.first?.content == Array("aa".utf8))
    }

    @Test("a TLS handshake without a response runs into the connect deadline: not reached")
    func connectDeadline() throws {
        let origin = try LoopbackOrigin { $0.waitForEnd() }
        let outcome = try upstream(
            "https://127.0.0.1:\(origin.port)",
            connect: .milliseconds(300)
        ).attempt("GET")
        #expect(outcome.isNotReached && outcome.timedOut)
        #expect(outcome.reason.contains("timeouts.connect"), "\(outcome)")
    }

    @Test("content that throws or ends early aborts the attempt and closes the connection")
    func brokenContent() throws {
        struct Broken: Error {}
        let contents: [UpstreamContent] = [
            .file(descriptor: nil, length: 10) { _, _ in throw Broken() },
            .file(descriptor: nil, length: 100_000) { _, position in
                if position > 0 { throw Broken() }
                return 50_000
            },
            .file(descriptor: nil, length: 100_000) { _, position in position > 0 ? 0 : 50_000 },
            .file(descriptor: nil, length: 100) { _, position in position > 0 ? 0 : 50 },
            .framed(before: [1], length: 10, read: { _, _ in throw Broken() }, after: [2]),
            .framed(before: [1], length: 10, read: { _, at in at > 0 ? 0 : 5 }, after: [2]),
            .framed(before: [1], length: 99_999, read: { _, at in at > 0 ? 0 : 5 }, after: [2]),
            .stream(length: 10) { _ in throw Broken() },
            .stream(length: nil) { _ in throw Broken() },
            patternStream(5, piece: 5, saysLength: false).announced(as: 6),
        ]
        for content in contents {
            let origin = try LoopbackOrigin()
            let sink = RecordingSink()
            let outcome = try upstream(origin.base).attempt("PUT", content: content, sink: sink)
            #expect(outcome.isPeerGone, "\(outcome)")
            #expect(sink.head == nil)
            #expect(origin.requests.isEmpty)
        }
    }

    @Test(
        "64 MiB need constant memory, framed, as a file and as a stream of unknown length"
    )
    func constantMemory() throws {
        let length: Int64 = 64 << 20
        let contents = [
            pattern(length), patternStream(length, piece: 1 << 18, saysLength: false),
            framedPattern(before: 300, middle: length - 400, after: 100),
        ]
        for inner in contents {
            let origin = try LoopbackOrigin { connection in
                guard let request = try connection.receiveRequest(keptContent: 0) else { return }
                try connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                let chunk = "10000\r\n" + String(repeating: "z", count: 0x10000) + "\r\n"
                for _ in 0..<(request.contentLength >> 16) { try connection.send(chunk) }
                try connection.send("0\r\n\r\n")
            }
            let peak = Mutex(0)
            let start = residentKilobytes()
            let content = inner.observed { peak.withLock { $0 = max($0, residentKilobytes()) } }
            let sink = RecordingSink()
            sink.keptContent = 0
            let outcome = try upstream(origin.base).attempt("PUT", content: content, sink: sink)
            #expect(outcome == .responded)
            #expect(origin.requests.first?.contentLength == Int(length))
            #expect(sink.contentCount == Int(length))
            // Other tests run concurrently; 64 MiB held in memory would still exceed this.
            #expect(peak.withLock { $0 } - start < 40 * 1024)
            #expect(residentKilobytes() - start < 40 * 1024)
        }
    }
}

extension UpstreamContent {
    /// Content that libcurl sends in different ways.
    enum Kind: Sendable {
        case none
        case small
        case large
        case stream

        var content: UpstreamContent {
            switch self {
            case .none: .none
            case .small: .bytes([1, 2, 3])
            case .large: pattern(300_000)
            case .stream: patternStream(50_000, piece: 5000, saysLength: false)
            }
        }
    }

    /// The same with a length that may be wrong.
    func announced(as length: Int64) -> UpstreamContent {
        guard case .stream(_, let read) = self else { return self }
        return .stream(length: length, read: read)
    }

    /// The same, with a call of `look` at every read.
    func observed(_ look: @escaping () -> Void) -> UpstreamContent {
        switch self {
        case .none, .bytes, .held:
            return self
        case .file(let descriptor, let length, let read):
            return .file(descriptor: descriptor, length: length) {
                look()
                return try read($0, $1)
            }
        case .framed(let before, let length, let read, let after):
            return .framed(
                before: before,
                length: length,
                read: {
                    look()
                    return try read($0, $1)
                },
                after: after
            )
        case .stream(let length, let read):
            return .stream(length: length) {
                look()
                return try read($0)
            }
        }
    }
}

private func residentKilobytes() -> Int {
    let status = (try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)) ?? ""
    let line = status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") } ?? ""
    return Int(line.filter(\.isNumber)) ?? 0
}
