// Identities, resource names, JSON text, problem documents and the fields between client and upstream.

import Foundation
import HTTPTypes
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@Suite("Identities and resource names")
struct NameTests {
    @Test("an identity has one spelling of 26 characters")
    func spelling() {
        #expect(UploadID(high: 0, low: 0).description == String(repeating: "0", count: 26))
        #expect(
            UploadID(high: .max, low: .max).description
                == String(repeating: "v", count: 25) + "s"
        )
        #expect(UploadID(high: 0, low: 1).description == String(repeating: "0", count: 25) + "4")
        #expect(
            UploadID(high: 1 << 63, low: 0).description == "g" + String(repeating: "0", count: 25)
        )
        var random = SplitMix(seed: 1)
        for _ in 0..<200 {
            let id = UploadID(high: random.next(), low: random.next())
            #expect(UploadID(id.description) == id)
        }
    }

    @Test(
        "other spellings are not identities",
        arguments: [
            "", "0", String(repeating: "0", count: 25), String(repeating: "0", count: 27),
            String(repeating: "0", count: 25) + "1", String(repeating: "0", count: 25) + "2",
            "V" + String(repeating: "0", count: 25), "w" + String(repeating: "0", count: 25),
            "../" + String(repeating: "0", count: 23), " " + String(repeating: "0", count: 25),
            "٠" + String(repeating: "0", count: 25), "\0" + String(repeating: "0", count: 25),
            "%30" + String(repeating: "0", count: 23),
        ]
    )
    func noSpelling(text: String) {
        #expect(UploadID(text) == nil)
    }

    @Test(
        "a resource is found at the path it was given",
        arguments: [nil, "/uploads/", "/"].flatMap { prefix in
            [nil, "n1"].map { UploadResources(prefix: prefix, node: $0) }
        },
        ["/", "/a", "/a/", "/a/upload-resource/b", "/é/%2F"]
    )
    func roundTrip(resources: UploadResources, creationPath: String) {
        let id = UploadID(high: 7, low: 8)
        let path = resources.path(of: id, creationPath: creationPath)
        #expect(path.hasSuffix("/\(id)") && !path.contains("//"))
        #expect(resources.match(path) == .resource(id))
        #expect(resources.match(Substring(path)) == .resource(id))
        #expect(resources.match(path + "/") == .malformed)
    }

    @Test("the path ends at the question mark")
    func query() {
        for query in ["", "?", "?a=b?c", "?\u{301}x"] {
            #expect(RequestHead(method: .get, target: "/a/b" + query).path == "/a/b")
        }
    }

    @Test("a path of another form is not a resource")
    func noResource() {
        let id = UploadID(high: 7, low: 8)
        for path in ["/", "", "*", "/upload-resource", "/a/\(id)", "/a/upload-resourceX/\(id)"] {
            #expect(UploadResources().match(path) == .none)
        }
        for end in ["", "..", "\(id)x", "X/\(id)", "/\(id)", "\(id)".uppercased() + "V"] {
            #expect(UploadResources().match("/a/upload-resource/" + end) == .malformed)
        }
        #expect(UploadResources(prefix: "/up/").match("/up") == .none)
        #expect(UploadResources(prefix: "/up/").match("/up/") == .malformed)
    }

    @Test(
        "another node's resource is one, whether this node has a name or not",
        arguments: [nil, "n1"]
    )
    func elsewhere(node: String?) {
        let id = UploadID(high: 7, low: 8)
        let resources = UploadResources(node: node)
        func match(_ end: String) -> UploadResources.Match {
            resources.match("/a/upload-resource/\(end)")
        }
        #expect(match("n2/\(id)") == .elsewhere(.resource(id)))
        #expect(match("n2/\(id)/status") == .elsewhere(.status(id)))
        #expect(match("n2/\(id)x") == .malformed)
        #expect(match("n2/n1/\(id)") == .malformed)
        #expect(match("123456789/\(id)") == .malformed)
        #expect(match("\(id)") == .resource(id))
        #expect(match("\(id)/status") == .status(id))
    }
}

@Suite("Documents")
struct DocumentTests {
    @Test(
        "a number's digits follow the earlier text",
        arguments: [0, 9, 10, 1_000_000, .max, -1, .min] as [Int64]
    )
    func digits(number: Int64) {
        var bytes = ByteBuilder(room: 3)
        bytes.put("n=")
        bytes.put(decimal: number)
        #expect(bytes.text == "n=\(number)")
    }

    @Test("JSON text is valid for a JSON parser")
    func text() throws {
        let strings = [
            "", "a\"b\\c/", "\n\r\t\u{0}\u{1f}\u{7f}\u{2028}", "é😀\u{301}", "\u{85}",
            "\u{9b}2J\u{202e}",
        ]
        let value = JSON.object([
            ("strings", .array(strings.map { .string($0) })), ("least", .integer(.min)),
            ("most", .integer(.max)), ("yes", .boolean(true)), ("nothing", .null),
            ("empty", .object([])), ("a\"key", .array([])),
        ])
        #expect(!value.text.contains { $0.isNewline })
        #expect(!value.text.unicodeScalars.contains { $0.isUnprintable })
        let read = try #require(
            JSONSerialization.jsonObject(with: Data(value.text.utf8)) as? [String: Any]
        )
        #expect(read["strings"] as? [String] == strings)
        #expect(read["least"] as? Int64 == .min && read["most"] as? Int64 == .max)
        #expect(read["yes"] as? Bool == true && read["nothing"] is NSNull)
        #expect(read["a\"key"] as? [String] == [])
    }

    @Test("equality of JSON counts the order of members")
    func equality() {
        let one = JSON.object([("a", .null), ("b", .null)])
        #expect(one == JSON.object([("a", .null), ("b", .null)]))
        #expect(one != JSON.object([("b", .null), ("a", .null)]))
    }

    @Test("a typed problem has type, title, status, detail, code and its members, in this order")
    func typed() {
        #expect(
            Refusal.offsetMismatch(expected: 5, provided: 3).document.text == """
                {"type":"https://iana.org/assignments/http-problem-types#\
                mismatching-upload-offset",\
                "title":"offset from request does not match offset of resource","status":409,\
                "detail":"The upload has 5 bytes. Continue at Upload-Offset: 5.",\
                "code":"offset-mismatch",\
                "expected-offset":5,"provided-offset":3}
                """
        )
    }

    static let refusals: [Refusal] = [
        .unknownUpload, .uploadLost, .methodNotAllowed, .wrongMediaType, .missingOffset,
        .missingCompleteness, .strayField(.uploadOffset), .offsetMismatch(expected: 1, provided: 2),
        .lengthChanged(known: 1, stated: 2), .lengthExceeded(length: 1),
        .lengthNotReached(length: 2, offset: 1), .alreadyComplete(typed: true),
        .alreadyComplete(typed: false), .tooLarge(maxSize: 1),
        .appendTooLarge(maxAppendSize: 1), .finalResponsePending,
        .deliveryUnderWay, .outcomeUnknown, .outcomeUnknownGone,
        .notReached(timedOut: false, isKept: true),
        .notReached(timedOut: true, isKept: false),
        .upstreamBrokeOff(reason: "r"), .upstreamBrokeOff(reason: "r", timedOut: true),
        .upstreamSilent(reason: "r"), .upstreamSilent(reason: "r", timedOut: true), .uploadInUse,
        .busy, .tooManyWait, .clientBusy, .clientWaits, .clientHasUploads, .tooManyUploads,
        .draining, .spoolFull, .spoolFailed, .stalled(seconds: 1), .truncated,
        .malformed(reason: "r"), .tooManyFields(limit: 1), .fieldsTooLarge(limit: 1),
        .targetTooLong(limit: 1), .unknownRoute(name: "r"), .unknownRoute(name: nil),
        .notTaken(message: ""),
    ]

    @Test("a status without a known phrase leaves the title to the refusal")
    func title() {
        var refusal = Refusal.notTaken(message: "No.")
        refusal.status = .init(code: 451)
        #expect(
            refusal.document.text
                == #"{"title":"content refused","status":451,"detail":"No.","code":"inspection-refused"}"#
        )
    }

    @Test("every refusal is an error with a phrase, a title and whole sentences")
    func sentences() {
        for refusal in DocumentTests.refusals {
            #expect((400..<600).contains(refusal.status.code))
            #expect(!refusal.status.reasonPhrase.isEmpty, "\(refusal.title)")
            #expect(!refusal.title.isEmpty && refusal.title.last != ".")
            #expect(refusal.detail.last == "." && refusal.detail.first?.isUppercase == true)
            #expect(!refusal.detail.contains("\n"))
            let response = refusal.response
            #expect(response.head.fields[.contentType] == "application/problem+json")
            #expect(response.head.fields[.retryAfter] == refusal.retryAfter.map(String.init))
            #expect(response.content.last == UInt8(ascii: "\n"))
        }
        #expect(Refusal.methodNotAllowed.response.head.fields.contains(.allow))
        #expect(Refusal.wrongMediaType.response.head.fields.contains(.acceptPatch))
    }

    @Test("limits above a structured field's maximum are reported as that maximum")
    func clamped() {
        let limits = UploadLimits(maxSize: .max, maxAge: .max)
        #expect(
            limits.fieldValue("max-age", remainingAge: -5)
                == "max-size=999999999999999, min-size=0, max-age=0"
        )
    }

    @Test("Upload-Limit has no minimum above its maximum, which an authorizer may lower")
    func lowered() {
        let limits = UploadLimits(maxSize: 10, minSize: 100, maxAge: 60)
        let text = "max-size=10, min-size=10, max-age=60"
        #expect(limits.fieldValue("max-age") == text)
    }
}

@Suite("Fields between client and upstream")
struct UpstreamFieldTests {
    private func fields(_ lines: [(String, String)]) -> HTTPFields {
        HTTPFields(
            lines.compactMap { line in
                HTTPField.Name(line.0).map { HTTPField(name: $0, value: line.1) }
            }
        )
    }

    private func lines(_ fields: HTTPFields) -> [String] {
        fields.map { "\($0.name): \($0.value)" }
    }

    @Test("the regular request has the creation's fields without protocol and connection")
    func delivered() {
        let creation = fields([
            ("Host", "a:8"), ("Upload-Draft-Interop-Version", "6"), ("Upload-Complete", "?1"),
            ("Upload-Incomplete", "?0"), ("Upload-Offset", "0"), ("Upload-Length", "5"),
            ("Upload-Limit", "x"), ("Upload-Token", "x"), ("Upload-Metadata", "x"),
            ("Upload-Defer-Length", "1"), ("Upload-Concat", "x"), ("Upload-Checksum", "x"),
            ("Tus-Resumable", "1.0.0"), ("X-HTTP-Method-Override", "PATCH"),
            ("Incremental", "?1"), ("Expect", "100-continue"), ("Connection", "close"),
            ("Keep-Alive", "5"), ("Proxy-Authorization", "x"),
            ("Proxy-Connection", "x"), ("Proxy", "x"), ("TE", "trailers"), ("Trailer", "x"),
            ("Transfer-Encoding", "chunked"), ("Upgrade", "h2c"), ("Content-Length", "5"),
            ("Content-Digest", "sha-256=:x:"), ("Repr-Digest", "sha-256=:y:"),
            ("Content-Type", "Application/Partial-Upload ; a=b"), ("Content-Encoding", "gzip"),
            ("Cookie", "a=b"), ("Cookie", "c=d"), ("X-Upload-Complete", "kept"),
            ("Idempotency-Key", "k"), ("If-Match", "*"),
        ])
        let kept = [
            "Host: a:8", "Repr-Digest: sha-256=:y:", "Content-Type: application/octet-stream",
            "Content-Encoding: gzip", "Cookie: a=b", "Cookie: c=d", "X-Upload-Complete: kept",
            "Idempotency-Key: k", "If-Match: *",
        ]
        #expect(lines(UpstreamFields.delivered(creation)) == kept)
        #expect(
            lines(UpstreamFields.delivered(creation, isWhole: true))
                == [kept[0], "Content-Digest: sha-256=:x:"] + kept[1...]
        )
    }

    @Test("another media type is unchanged")
    func mediaType() {
        let type = "Multipart/Form-Data; boundary=\"a;b\""
        #expect(
            UpstreamFields.delivered([.contentType: type])[.contentType] == type
        )
    }

    @Test("an ordinary request keeps all fields but the protocol's marker")
    func passedThrough() {
        let request = fields([
            ("Tus-Resumable", "1.0.0"), ("Upload-Length", "5"), ("Upload-Offset", "0"),
            ("Upload-Complete", "?1"), ("Upload-Incomplete", "?0"),
            ("Upload-Draft-Interop-Version", "6"), ("Range", "bytes=0-1"),
            ("Connection", "keep-alive"), ("Content-Length", "5"),
        ])
        #expect(
            lines(UpstreamFields.passedThrough(request)) == [
                "Tus-Resumable: 1.0.0", "Upload-Length: 5", "Upload-Offset: 0",
                "Range: bytes=0-1",
            ]
        )
    }

    @Test("a relayed response has no fields of an upload protocol, a passed one has all")
    func relayed() {
        let response = fields([
            ("Location", "/x"), ("Upload-Offset", "5"), ("Upload-Anything", "x"),
            ("Tus-Version", "1.0.0"), ("Connection", "X-Hop"), ("x-hop", "1"),
            ("Transfer-Encoding", "chunked"), ("Content-Length", "5"), ("Status", "200 OK"),
            ("Set-Cookie", "a"), ("Set-Cookie", "b"), ("Content-Type", "text/html"),
        ])
        let kept = [
            "Location: /x", "Set-Cookie: a", "Set-Cookie: b", "Content-Type: text/html",
        ]
        #expect(lines(UpstreamFields.relayed(response)) == kept)
        #expect(
            lines(UpstreamFields.passedBack(response))
                == [kept[0], "Upload-Offset: 5", "Upload-Anything: x", "Tus-Version: 1.0.0"]
                + kept[1...]
        )
    }
}
