import Foundation
import HTTPTypes
@testable import SpoolgateCurl
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateUpstream

@Suite("A response")
struct ResponseTests {
    /// Sends one request to an origin that sends `text` and closes.
    private func exchange(
        _ text: String,
        method: String = "GET",
        sink: RecordingSink = RecordingSink()
    ) throws -> (AttemptOutcome, RecordingSink) {
        let origin = try LoopbackOrigin { connection in
            _ = try connection.receiveRequest()
            try connection.send(
                Array(text.unicodeScalars.map { UInt8(truncatingIfNeeded: $0.value) })
            )
        }
        let outcome = try upstream(origin.base).attempt(method, sink: sink)
        return (outcome, sink)
    }

    @Test(
        "status, reason, repeated fields, odd names, high bytes and content arrive unchanged"
    )
    func whole() throws {
        let (outcome, sink) = try exchange(
            "HTTP/1.1 299 Rather Odd\r\nSet-Cookie: a=1\r\nx-y:\r\nSet-Cookie:  b=2 \r\n"
                + "X-Folded: one\r\n  two\r\nX-High: \u{e9}\u{ff}\r\nContent-Encoding: gzip\r\n"
                + "Content-Length: 4\r\n\r\n\u{1f}\u{8b}zz"
        )
        #expect(outcome == .responded)
        let head = try #require(sink.head)
        #expect(head.status.code == 299)
        #expect(head.status.reasonPhrase == "Rather Odd")
        #expect(
            head.fields.map(\.name.rawName) == [
                "Set-Cookie", "x-y", "Set-Cookie", "X-Folded", "X-High", "Content-Encoding",
                "Content-Length",
            ]
        )
        #expect(head.fields[0].value == "a=1" && head.fields[2].value == "b=2")
        #expect(head.fields[3].value == "one two")
        #expect(head.fields[4].withUnsafeBytesOfValue { Array($0) } == [0xe9, 0xff])
        #expect(sink.contentLength == 4)
        #expect(sink.content == [0x1f, 0x8b, 0x7a, 0x7a])
    }

    @Test("a head of too many fields is invalid, and ends only the attempt")
    func tooManyFields() throws {
        let lines = String(repeating: "a:\n", count: 70_000)
        let (outcome, sink) = try exchange("HTTP/1.1 200 OK\n\(lines)\n")
        #expect(outcome.isIndeterminate)
        #expect(outcome.reason.contains("more than 2000 field lines"), "\(outcome)")
        #expect(sink.head == nil)
    }

    @Test(
        "content ends as its framing says",
        arguments: [
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\n"
                    + "X-Trailer: 1\r\n\r\n", "abcde", Int64?.none
            ),
            ("HTTP/1.0 200 OK\r\n\r\nuntil the end", "until the end", nil),
            ("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "", 0),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\nContent-Length: 2\r\n\r\nab", "ab", 2),
            ("HTTP/1.1 204 No Content\r\n\r\n", "", nil),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n", "", nil),
            (
                "HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 1\r\n\r\nm",
                "m", 1
            ),
            ("HTTP/1.1 401 No\r\nWWW-Authenticate: Basic\r\nContent-Length: 1\r\n\r\nm", "m", 1),
            ("HTTP/1.1 417 No\r\nContent-Length: 1\r\n\r\nm", "m", 1),
        ]
    )
    func framing(text: String, content: String, length: Int64?) throws {
        let (outcome, sink) = try exchange(text)
        #expect(outcome == .responded)
        #expect(sink.text == content)
        #expect(sink.contentLength == length)
        #expect(sink.head?.fields.contains { $0.name.rawName == "X-Trailer" } == false)
    }

    @Test("a HEAD's length is reported and not awaited")
    func head() throws {
        let (outcome, sink) = try exchange(
            "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
            method: "HEAD"
        )
        #expect(outcome == .responded)
        #expect(sink.head?.fields[.contentLength] == "1000")
        #expect(sink.contentLength == 1000)
    }

    @Test("interim responses 102 and 103 are passed on, 100 and 104 are not")
    func interim() throws {
        let (outcome, sink) = try exchange(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\nLink: </b>\r\n\r\n"
                + "HTTP/1.1 104 Upload Resumption Supported\r\nLocation: /u\r\n\r\n"
                + "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
            method: "POST"
        )
        #expect(outcome == .responded)
        #expect(sink.interim.map(\.status.code) == [103, 102])
        #expect(sink.interim.first?.fields.map(\.value) == ["</a>", "</b>"])
        #expect(sink.head?.status.code == 200)
        #expect(sink.head?.fields.contains { $0.name.rawName == "Link" } == false)
    }

    @Test(
        "an invalid response is indeterminate and never reaches the sink",
        arguments: [
            "SSH-2.0-OpenSSH_9\r\n\r\n", "HTTP/2 200\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 2000 OK\r\n\r\n", "HTTP/1.1 099 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "HTTP/1.1 200 OK\r\nbad name: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nX: a\u{0}b\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\n"
                + String(repeating: "X: " + String(repeating: "y", count: 9000) + "\r\n", count: 40),
        ]
    )
    func malformed(text: String) throws {
        let (outcome, sink) = try exchange(text)
        #expect(outcome.isIndeterminate, "\(outcome)")
        #expect(sink.head == nil)
        #expect(outcome.reason.contains("GET /x to http://127.0.0.1:"))
    }

    @Test(
        "a response that is cut is indeterminate",
        arguments: [
            "", "HTTP/1.1 200 OK\r\nContent-", "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        ]
    )
    func cut(text: String) throws {
        let (outcome, _) = try exchange(text)
        #expect(outcome.isIndeterminate, "\(outcome)")
    }

    @Test("a sink that throws ends the exchange as not received", arguments: [true, false])
    func refusingSink(atHead: Bool) throws {
        let sink = RecordingSink()
        sink.refusesHead = atHead
        sink.refusesContent = !atHead
        let (outcome, _) = try exchange(
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab",
            sink: sink
        )
        #expect(outcome.isUnheard)
        #expect(outcome.reason.contains("Refused"))
    }

    @Test(
        "a refusal while 20 MB are being sent is the response, for every kind of content",
        arguments: ["file", "stream", "chunked"]
    )
    func early(kind: String) throws {
        let length: Int64 = 20_000_000
        for round in 0..<15 {
            let origin = try LoopbackOrigin { connection in
                _ = try connection.receiveHead()
                _ = connection.receive()
                try connection.response("413 Too Large", content: "no")
                // Closed with unread content: the system sends a reset immediately.
            }
            let content =
                switch kind {
                case "file": pattern(length)
                default: patternStream(length, piece: 100_000, saysLength: kind == "stream")
                }
            let sink = RecordingSink()
            let outcome = try upstream(origin.base).attempt("POST", content: content, sink: sink)
            #expect(outcome == .responded, "round \(round)")
            #expect(sink.head?.status.code == 413)
            #expect(sink.text == "no")
        }
    }

    /// The race between libcurl's socket check and a failing write cannot be forced, so the test makes the calls
    /// itself.
    @Test(
        "an unread response is used after a failed write, if it is complete",
        arguments: [
            ("HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno", 413, "no", true),
            (
                "HTTP/1.1 103 Hints\r\n\r\nHTTP/1.1 411 No\r\nContent-Length: 0\r\n\r\n", 411, "",
                true
            ),
            ("HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\nno and more", 401, "no", true),
            ("HTTP/1.1 413 No\r\nContent-Length: 9\r\n\r\nno", nil, "", false),
            ("HTTP/1.1 413 No\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", nil, "", false),
            ("HTTP/1.1 413 No\r\nContent-Le", nil, "", false),
            ("ngth: 2\r\n\r\nno", nil, "", false), ("", nil, "", false),
        ]
    )
    func unread(said: String, status: Int?, content: String, isWhole: Bool) throws {
        let connection = try #require(CurlConnection())
        let sink = RecordingSink()
        let attempt = HTTPAttempt(
            try UpstreamRequest("POST", content: pattern(300_000)),
            to: UpstreamLocation(base: "http://127.0.0.1"),
            settings: try upstream("http://127.0.0.1").settings,
            over: connection,
            sink: sink
        )
        connection.context.transfer = attempt
        defer { connection.context.transfer = nil }
        #expect(attempt.mayBeginRequest())
        var ends: [Int32] = [-1, -1]
        try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
        #expect(write(ends[1], said, said.utf8.count) == said.utf8.count)
        close(ends[1])
        #expect(connection.context.closeSocket(ends[0]) == 0)
        attempt.receiveLastResponse()
        #expect(sink.head?.status.code == status)
        #expect(sink.text == content)
        #expect(attempt.reading.isWhole == isWhole)
    }
}
