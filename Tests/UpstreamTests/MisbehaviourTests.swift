// The ways in which an origin misbehaves: the outcome, its reason, whether a deadline ended the attempt, and the number
// of requests received.

import Foundation
import HTTPTypes
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Synchronization
import Testing

@testable import SpoolgateUpstream

@Suite("A misbehaving origin")
struct MisbehaviourTests {
    /// The expected outcome of an attempt.
    struct FindingCount: Sendable {
        enum Kind: Sendable {
            case responded(Int)
            case notReached
            case indeterminate
        }
        var kind: Kind
        /// A part of the reason.
        var words = ""
        var timedOut = false
        /// The requests whose header section the origin read.
        var seen = 1
        var interim: [Int] = []
    }

    struct Case: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var result: FindingCount
        var script: @Sendable (OriginConnection) throws -> Void

        init(_ name: String, _ result: FindingCount, _ script: @escaping LoopbackOrigin.Script) {
            testDescription = name
            self.result = result
            self.script = script
        }
    }

    /// More than socket buffers hold.
    private static let length: Int64 = 20_000_000

    private static let cases = [
        Case(
            "closes at once",
            FindingCount(kind: .indeterminate, words: "no response was received", seen: 0)
        ) { _ in },
        Case(
            "resets at the first byte",
            FindingCount(kind: .indeterminate, words: "no response was received", seen: 0)
        ) {
            _ = $0.receive(upTo: 1)
            $0.reset()
        },
        Case("resets half-way", FindingCount(kind: .indeterminate, words: "at least partly")) {
            _ = try $0.receiveHead()
            var left = length / 2
            while left > 0 { left -= Int64($0.receive().count) }
            $0.reset()
        },
        Case(
            "reads all, then closes",
            FindingCount(kind: .indeterminate, words: "no response was received")
        ) {
            _ = try $0.receiveRequest(keptContent: 0)
        },
        Case(
            "stops reading",
            FindingCount(kind: .indeterminate, words: "no data was", timedOut: true)
        ) {
            _ = try $0.receiveHead()
            $0.waitWithoutReading()
        },
        Case(
            "reads all and says nothing",
            FindingCount(kind: .indeterminate, words: "no response within", timedOut: true)
        ) {
            _ = try $0.receiveRequest(keptContent: 0)
            $0.waitForEnd()
        },
        Case("refuses after the head", FindingCount(kind: .responded(413))) {
            _ = try $0.receiveHead()
            try $0.response("413 Too Large", fields: ["Connection: close"], content: "no")
        },
        Case("answers early and reads on", FindingCount(kind: .responded(200))) {
            _ = try $0.receiveHead()
            try $0.response("200 OK", content: "fine already")
            $0.waitForEnd()
        },
        Case(
            "says 100, 103, 102, 103 and then answers",
            FindingCount(kind: .responded(201), interim: [103, 102, 103])
        ) {
            _ = try $0.receiveHead()
            try $0.send(
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
            )
            var left = length
            while left > 0 { left -= Int64($0.receive(upTo: 1 << 18).count) }
            try $0.send("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n")
            try $0.response("201 Created")
        },
        Case(
            "says 100 again and again and then closes",
            FindingCount(kind: .indeterminate, words: "no response was received")
        ) {
            _ = try $0.receiveRequest(keptContent: 0)
            for _ in 0..<100 { try $0.send("HTTP/1.1 100 Continue\r\n\r\n") }
        },
        Case(
            "announces more than it sends",
            FindingCount(kind: .indeterminate, words: "the response was truncated")
        ) {
            _ = try $0.receiveRequest(keptContent: 0)
            try $0.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
        },
        Case(
            "announces more than it sends, and keeps the connection",
            FindingCount(
                kind: .indeterminate,
                words: "no further part of the response",
                timedOut: true
            )
        ) {
            _ = try $0.receiveRequest(keptContent: 0)
            try $0.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
            $0.waitForEnd()
        },
        Case("sends more than it announced", FindingCount(kind: .responded(200))) {
            _ = try $0.receiveRequest(keptContent: 0)
            try $0.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef")
        },
        Case(
            "closes in the head",
            FindingCount(kind: .indeterminate, words: "within the response's header section")
        ) {
            _ = try $0.receiveRequest(keptContent: 0)
            try $0.send("HTTP/1.1 200 OK\r\nContent-Le")
        },
        Case(
            "drips a head without end",
            FindingCount(kind: .indeterminate, words: "no response within", timedOut: true)
        ) {
            _ = try $0.receiveRequest(keptContent: 0)
            try $0.send("HTTP/1.1 200 OK\r\n")
            while true {
                try $0.send("X: y\r\n")
                // Each line is well within each deadline.
                usleep(50_000)
            }
        },
        Case("sends a head without end", FindingCount(kind: .indeterminate, words: "longer than")) {
            _ = try $0.receiveRequest(keptContent: 0)
            let line = "X: " + String(repeating: "y", count: 8000) + "\r\n"
            try $0.send("HTTP/1.1 200 OK\r\n")
            while true { try $0.send(line) }
        },
        Case(
            "speaks another protocol",
            FindingCount(kind: .indeterminate, words: "no response was received")
        ) {
            _ = try $0.receiveHead()
            try $0.send("220 mail.example ESMTP\r\n")
            $0.waitForEnd()
        },
    ]

    // Long because silent rows end by a deadline.
    @Test("gets the true result, once", arguments: cases)
    func result(of one: Case) throws {
        let seen = Mutex(0)
        let origin = try LoopbackOrigin(receiveBuffer: 1 << 18) { connection in
            connection.onHead = { seen.withLock { $0 += 1 } }
            try one.script(connection)
        }
        let (result, sink) = (one.result, RecordingSink())
        let deadline = Duration.milliseconds(result.timedOut ? 300 : 30_000)
        let upstream = try upstream(origin.base, stall: deadline, response: deadline)
        let outcome = try upstream.attempt("POST", content: pattern(Self.length), sink: sink)
        switch result.kind {
        case .responded(let status):
            #expect(outcome == .responded, "\(outcome)")
            #expect(sink.head?.status.code == status)
        case .notReached: #expect(outcome.isNotReached, "\(outcome)")
        case .indeterminate: #expect(outcome.isIndeterminate, "\(outcome)")
        }
        #expect(outcome == .responded || outcome.reason.contains(result.words), "\(outcome)")
        #expect(outcome == .responded || outcome.reason.contains("POST /x to \(origin.base)"))
        #expect(outcome.timedOut == result.timedOut, "\(outcome)")
        #expect(sink.interim.map(\.status.code) == result.interim)
        #expect(origin.connectionCount == 1)
        #expect(seen.withLock { $0 } == result.seen)
    }

    @Test("503 is a response like any other: another try is another attempt")
    func laterThenDone() throws {
        let origin = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                let isFirst = request.number == 0
                try connection.response(
                    isFirst ? "503 Later" : "200 OK",
                    fields: ["Retry-After: 0"]
                )
            }
        }
        let upstream = try upstream(origin.base)
        for status in [503, 200] {
            let sink = RecordingSink()
            #expect(try upstream.attempt("PUT", content: pattern(1000), sink: sink) == .responded)
            #expect(sink.head?.status.code == status)
        }
        #expect(origin.requests.count == 2)
        // The server may have refused the content without reading it.
        #expect(origin.connectionCount == 2)
    }

    /// Unsolicited bytes would be taken for the next request's response.
    @Test(
        "data after a whole response is never another request's response",
        arguments: [true, false],
        ["GET", "POST"]
    )
    func forgedAnswer(inOnePiece: Bool, method: String) throws {
        let forged = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
        let hasForged = Mutex(false)
        let origin = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                let response = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue"
                guard request.number == 0 else {
                    try connection.send(response)
                    continue
                }
                if inOnePiece {
                    try connection.send(response + forged)
                } else {
                    try connection.send(response)
                    // The response was read: the connection is idle in the pool.
                    try eventually("the first attempt has ended") { hasForged.withLock { $0 } }
                    try connection.send(forged)
                    hasForged.withLock { $0 = false }
                }
            }
        }
        let upstream = try upstream(origin.base)
        let first = RecordingSink()
        #expect(try upstream.attempt(method, sink: first) == .responded)
        #expect(first.text == "true")
        if !inOnePiece {
            hasForged.withLock { $0 = true }
            try eventually("it is sent") { hasForged.withLock { !$0 } }
        }
        let second = RecordingSink()
        let outcome = try upstream.attempt(method, "/second", content: .bytes([1]), sink: second)
        #expect(outcome == .responded, "\(outcome)")
        #expect(second.text == "true")
    }
}
