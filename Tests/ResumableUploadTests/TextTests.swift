// The text of tokens, URLs and their references, and the table of responses.

import Foundation
import HTTPTypes
import SpoolgateUploadProtocol
import Testing

@testable import ResumableUpload

@Suite("Texts and tables")
struct TextTests {
    @Test("a token's text is one line of ASCII and reads back, through any coder too")
    func tokens() throws {
        for token in [
            Upload.Token(url: "http://a/u/1", target: "http://a/f"),
            Upload.Token(
                url: "https://a:8443/ü?x=1&y=%20",
                target: "https://a/b",
                length: 5,
                interopVersion: nil,
                fingerprint: "5-1.2-3",
                mayBeComplete: true
            ),
        ] {
            #expect(token.text.utf8.allSatisfy { (0x20...0x7e).contains($0) })
            #expect(Upload.Token(token.text) == token)
            let coded = try JSONEncoder().encode(token)
            #expect(try JSONDecoder().decode(Upload.Token.self, from: coded) == token)
        }
        let download = Download.Token(url: "http://a/f", offset: 9, validator: "\"a b\"")
        #expect(Download.Token(download.text) == download)
        for wrong in [
            "", "v1 upload", "v2 upload url=http://a target=http://b", "v1 upload url=http://a",
            "v1 upload url=file:///etc target=http://b",
            "v1 upload url=http://a target=http://b length=x",
            "v1 upload url=http://a url=http://a target=http://b", download.text,
        ] { #expect(Upload.Token(wrong) == nil) }
    }

    @Test(
        "a Location relative to a URL (RFC 3986 §5.2)",
        arguments: [
            ("http://h/a/b?q", "/u/1", "http://h/u/1"), ("http://h/a/b?q", "u/1", "http://h/a/u/1"),
            ("http://h", "u", "http://h/u"), ("http://h/a", "?x", "http://h/a?x"),
            ("http://h/a", "//other/x", "http://other/x"), ("https://h/a", "//o/x", "https://o/x"),
            ("http://h/a", "HTTPS://o/x#f", "HTTPS://o/x"), ("http://h/a", "ftp://o/x", nil),
            ("http://h/a", "", nil), ("http://h/a", "http://u@h/", nil),
            ("http://h/a", "/a b", nil), ("http://h/a", "/\u{301}x", "http://h/\u{301}x"),
            ("http://h/\u{301}a/b", "u", "http://h/\u{301}a/u"),
            ("http://h/a?\u{301}q", "u", "http://h/u"),
        ] as [(String, String, String?)]
    )
    func references(base: String, reference: String, whole: String?) throws {
        #expect(try #require(URLText(base)).resolved(reference)?.text == whole)
    }

    @Test("origins are compared without case and without the scheme's default port")
    func origins() throws {
        func origin(_ text: String) -> String? { URLText(text)?.origin }
        #expect(origin("HTTP://Host:80/a") == origin("http://host/b"))
        #expect(origin("https://host:443") == origin("https://HOST/"))
        #expect(origin("https://host:80") != origin("http://host:80"))
        #expect(origin("http://host:8080") != origin("http://host"))
        // The Kelvin sign, which Swift lower-cases to a k.
        let kelvin = try #require(URLText("http://\u{212A}"))
        for other in ["http://k", "http://K"] {
            #expect(try !kelvin.hasOrigin(of: #require(URLText(other))))
        }
        #expect(try #require(URLText("http://k")).hasOrigin(of: #require(URLText("http://K/"))))
    }

    @Test(
        "the meaning of each response",
        arguments: [
            (Step.plain, 500, [:], Decision.final), (.plain, 503, [:], .later),
            (.carefulCreation, 201, ["Location": "/u", "Upload-Offset": "0"], .acknowledged(0)),
            (.carefulCreation, 201, ["Location": "/u"], .unsupported),
            (.carefulCreation, 400, [:], .unknownVersion), (.carefulCreation, 403, [:], .refused),
            (.carefulCreation, 502, [:], .later), (.carefulCreation, 501, [:], .refused),
            (.optimisticCreation(isComplete: true), 500, [:], .final),
            (.optimisticCreation(isComplete: true), 412, [:], .unknownVersion),
            (.optimisticCreation(isComplete: true), 400, ["Upload-Complete": "?1"], .final),
            (.optimisticCreation(isComplete: true), 400, ["Upload-Complete": "?0"], .refused),
            (.append(isComplete: true), 400, [:], .refused),
            (.optimisticCreation(isComplete: true), 503, [:], .later),
            (.optimisticCreation(isComplete: false), 201, ["Upload-Offset": "7"], .acknowledged(7)),
            (.append(isComplete: true), 200, [:], .unconfirmed),
            (.append(isComplete: true), 200, ["Upload-Complete": "?1"], .final),
            (.append(isComplete: true), 200, ["Upload-Offset": "7"], .final),
            (.append(isComplete: true), 200, ["Upload-Complete": "?0"], .later),
            (.append(isComplete: true), 500, ["Upload-Complete": "?1"], .final),
            (.append(isComplete: true), 500, ["Upload-Incomplete": "?0"], .final),
            (.append(isComplete: true), 500, [:], .later),
            (.append(isComplete: false), 204, [:], .unconfirmed),
            (.append(isComplete: false), 204, ["Upload-Complete": "?0"], .acknowledged(nil)),
            (.append(isComplete: false), 200, ["Upload-Complete": "?1"], .unsupported),
            (.carefulCreation, 200, ["Upload-Complete": "?1"], .unsupported),
            (.carefulCreation, 403, ["Upload-Complete": "?1"], .final),
            (.optimisticCreation(isComplete: false), 200, ["Upload-Complete": "?1"], .unsupported),
            (.append(isComplete: false), 404, [:], .gone),
            (.append(isComplete: false), 410, ["Upload-Complete": "?1"], .final),
            (.append(isComplete: false), 409, ["Upload-Offset": "-1"], .conflict(nil)),
            (.append(isComplete: false), 413, [:], .tooLarge),
            (.append(isComplete: false), 413, ["Upload-Limit": "max-size=9"], .refused),
            (.optimisticCreation(isComplete: false), 413, [:], .final),
            (.append(isComplete: false), 413, ["Upload-Limit": "max-append-size=9"], .tooLarge),
            (.append(isComplete: false), 415, [:], .refused),
            (.retrieval, 204, ["Upload-Offset": "3"], .acknowledged(3)),
            (.retrieval, 204, [:], .unconfirmed),
            (.retrieval, 200, ["Upload-Complete": "?1"], .unconfirmed),
            (.retrieval, 204, ["Upload-Offset": "1.5"], .unconfirmed),
            (.retrieval, 410, [:], .gone),
            (.retrieval, 423, [:], .later), (.cancellation, 404, [:], .gone),
            (.cancellation, 204, [:], .final), (.cancellation, 200, [:], .unconfirmed),
        ] as [(Step, Int, [String: String], Decision)]
    )
    func verdicts(step: Step, status: Int, fields: [String: String], decision: Decision) throws {
        var head = ResponseHead(status: .init(code: status))
        for (name, value) in fields { head.fields[try #require(.init(name))] = value }
        #expect(Decision(of: ServerResponse(head), to: step, by: .post) == decision)
    }
}
