// The processor time that a client can cause before it is authorized.
//
// A debug build spends up to 0.1 s on an honest request with 60 KiB of fields; without limits, each of these values took
// many seconds. Invariant: the work grows in proportion to the number of bytes.

import HTTPTypes
import SpoolgateExchange
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateRequests
@testable import SpoolgateSettings

@Suite("cost")
struct CostTests {
    static let names = [
        "Upload-Complete", "Upload-Incomplete", "Upload-Draft-Interop-Version", "Upload-Offset",
        "Upload-Length", "Incremental", "Repr-Digest", "Content-Digest", "Want-Repr-Digest",
        "Upload-Limit", "Upload-Metadata", "Upload-Concat", "Upload-Checksum", "Tus-Resumable",
        "Upload-Defer-Length", "X-HTTP-Method-Override", "Connection", "Via", "Forwarded",
        "X-Forwarded-For", "Content-Type", "Content-Disposition", "Content-Range", "Prefer",
        "Expect", "Cookie", "Authorization", "Origin", "Access-Control-Request-Headers",
        "Access-Control-Request-Method", "Idempotency-Key", "If-Match", "If-None-Match", "Range",
        "X-Request-Id", "Host", "X-Odd",
    ]

    private static func keys(_ separator: String, count: Int, _ value: String = "") -> String {
        let letters = Array("abcdefghijklmnopqrstuvwxyz")
        return (0..<count).map { number in
            let key = [number / 676 % 26, number / 26 % 26, number % 26].map { letters[$0] }
            return String(key) + value
        }.joined(separator: separator)
    }

    /// Values of about 60 KiB; each grows with the square of its length in some parser.
    static let values: [(name: String, text: String)] = [
        ("parameters", "?0;" + keys(";", count: 15_000)),
        ("parameters of a number", "8;" + keys(";", count: 15_000)),
        ("members", keys(",", count: 15_000)),
        ("members with spaces", keys(", ", count: 12_000)),
        ("digests", keys("=:YQ==:,", count: 5_000, "") + "=:YQ==:"),
        ("an inner list", "a=(" + keys(" ", count: 15_000) + ")"),
        ("parameters in a list", "a=(x;" + keys(";", count: 15_000) + ")"),
        ("parentheses", String(repeating: "(", count: 60_000)),
        ("an open string", "\"" + String(repeating: "\\\"", count: 30_000)),
        ("a byte sequence", ":" + String(repeating: "A", count: 60_000) + ":"),
        ("digits", String(repeating: "9", count: 60_000)),
        ("metadata", keys(" YQ==,", count: 7_000, "") + " YQ=="),
        ("parts", "final;" + keys(" /files/upload-resource/", count: 2_000)),
        ("spaces", "final;" + String(repeating: " \t", count: 30_000)),
        ("commas", String(repeating: ",", count: 60_000)),
        ("semicolons", String(repeating: ";", count: 60_000)),
        ("marks", String(repeating: "a\u{301}, ", count: 12_000)),
        ("quotes", "attachment;" + String(repeating: "filename=\"\";", count: 5_000)),
        ("percent", "attachment; filename*=UTF-8''" + String(repeating: "%C3", count: 20_000)),
    ]

    // Long because every field meets every long value in every kind of request.
    @Test(
        "no field costs a second before the authorization, in any request",
        arguments: Portion.ofThisRun.taken(from: names, of: 3),
        [
            ("POST", "10"), ("PATCH", "6"), ("PUT", nil), ("HEAD", "10"), ("GET", nil),
            ("DELETE", "3"), ("OPTIONS", nil), ("POST", "tus"), ("PATCH", "tus"),
        ] as [(String, String?)]
    )
    func field(name: String, request: (String, String?)) throws {
        let test = try GatewayUnderTest { _, route in
            route.anonymous = .refuse
            route.crossOrigin.origins = ["https://app.example"]
        }
        let method = try #require(HTTPRequest.Method(rawValue: request.0))
        let target = ["PATCH", "HEAD", "DELETE"].contains(request.0) ? Self.resource : "/files"
        for value in Self.values {
            var fields: HTTPFields = [:]
            switch request.1 {
            case "tus":
                fields[.tusResumable] = Tus.version
                fields[.uploadLength] = "1"
            case let version?:
                fields[.uploadDraftInteropVersion] = version
                fields[.uploadComplete] = "?1"
            case nil: break
            }
            let field = try #require(HTTPField.Name(name))
            fields[field] = value.text
            let exchange = ScriptedExchange(method, target, fields, [])
            let seconds = ProcessorTime.of { _ = test.serve(exchange) }.seconds
            #expect(seconds < 1, "\(name): \(value.name) in \(request): \(seconds) s")
        }
    }

    private static let resource = "/files/upload-resource/aaaaaaaaaaaaaaaaaaaaaaaaaa"

    @Test("a field up to its limits is read, and one beyond them counts as malformed")
    func limits() {
        func boolean(_ parameters: Int, _ length: Int = 0) -> Bool? {
            let tail = (0..<parameters).map { ";a\($0)" }.joined()
            let pad = length > 0 ? ";z=\"\(String(repeating: "x", count: length))\"" : ""
            return StructuredField.boolean("?1" + tail + pad)
        }
        #expect(boolean(256) == true)
        #expect(boolean(257) == nil)
        #expect(boolean(0, 8_000) == true)
        #expect(boolean(0, 8_200) == nil)
        #expect(UploadMetadata.fault(of: "a " + String(repeating: "QUFB", count: 16_000)) == nil)
        #expect(UploadMetadata.fault(of: "a " + String(repeating: "QUFB", count: 16_400)) != nil)
        #expect(UploadConcat("final;" + String(repeating: "/a ", count: 20_000)) != nil)
        #expect(UploadConcat("final;" + String(repeating: "/a ", count: 22_000)) == nil)
    }
}
