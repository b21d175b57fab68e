// No query in log lines and events, and no response head too large for the web server.

import Foundation
import HTTPTypes
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool
import SpoolgateTextFormats

@Suite struct ShownTests {
    @Test(
        "a query is in no log line, event or reason, unless configured; the upstream gets it"
    )
    func queries() throws {
        for (shows, deed) in [
            (false, QueueScene.Deed.breaksOff), (true, .breaksOff), (false, .responses(500)),
        ] {
            let origin = try QueueScene.origin([deed])
            let test = try GatewayUnderTest(origin.target, tellsEvents: true) { settings, _ in
                settings.showsQueries = shows
            }
            test.serve(.creation(["a"], target: "/files?token=secret"))
            test.serve(ScriptedExchange(.put, "/a?token=secret", [:], ["x"]))
            test.serve(ScriptedExchange(.get, "/a?token=secret", [:], []))
            test.serve(.append("/files/upload-resource/x?token=secret", at: 0))
            #expect(origin.requests.first?.line.contains("?token=secret") == true)
            #expect(!test.log.text.contains("secret"), "\(test.log.text)")
            #expect(test.log.text.contains("/files?\u{2026}"))
            let told = try String(contentsOfFile: test.events, encoding: .utf8)
            #expect(told.contains("secret") == shows, "\(told)")
            let reasons = try test.summaries().compactMap(\.reason)
            #expect(!reasons.joined().contains("secret"))
        }
    }

    @Test("a target without a query is shown unchanged, one with an empty query is marked")
    func targets() {
        #expect("/a".shownTarget(withQuery: false) == "/a")
        #expect("/a?".shownTarget(withQuery: false) == "/a?\u{2026}")
        #expect("/a?b?c".shownTarget(withQuery: false) == "/a?\u{2026}")
        #expect("/a?b".shownTarget(withQuery: true) == "/a?b")
    }

    @Test(
        "an oversized head reaches the client with status, content and the fields that describe it"
    )
    func largeHead() throws {
        let origin = try LoopbackOrigin(
            status: "201 Created",
            fields: (0..<30).map { "X-\($0): \(String(repeating: "a", count: 4_000))" }
                + ["Content-Type: text/x-told", "Location: /made/1"],
            content: "made"
        )
        let test = try GatewayUnderTest(origin.target)
        let first = test.serve(.creation(["a"]))
        // The gateway's Location; the response has the upstream's.
        let location = try #require(first.interims.lazy.compactMap { $0.fields[.location] }.first)
        let again = test.serve(.append(location, at: 1))
        let plain = test.serve(ScriptedExchange(.put, "/a", [:], ["x"]))
        let passed = test.serve(ScriptedExchange(.get, "/a", [:], []))
        for record in [first, again, plain, passed] {
            #expect(record.status == 201)
            #expect(record.text == "made")
            #expect(record[.contentType] == "text/x-told")
            #expect(record[.location] == "/made/1")
            #expect(record.head?.fieldBytes ?? .max < ResponseHead.maximumFieldBytes)
        }
        #expect(test.log.values(of: "field-bytes", in: "response fields dropped").count == 3)
        #expect(test.log.messages.contains("upload delivered"))
    }

    @Test("a shortened head always fits, and one that fits is unchanged")
    func fitting() {
        var head = ResponseHead(status: .ok, fields: [.contentType: "a/b"])
        #expect(head.fitting == head)
        for field in ["content-type", "location", "etag", "cache-control", "allow", "x-a"] {
            guard let name = HTTPField.Name(field) else { continue }
            for _ in 0..<20 {
                head.fields.append(
                    HTTPField(name: name, value: String(repeating: "v", count: 4_000))
                )
            }
        }
        #expect(head.fitting.fieldBytes < ResponseHead.maximumFieldBytes)
        #expect(head.fitting.fields[.contentType] == "a/b")
    }
}
