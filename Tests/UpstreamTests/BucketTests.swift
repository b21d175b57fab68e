// A bucket as the upstream, in a scripted store that checks no signature; EndToEndTests uses a real one.

import Foundation
import HTTPTypes
import SpoolgateCurl
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateUpstream

extension Bucket {
    static func writeKey(to path: String, _ id: String = "KEY") throws {
        try Data("\(id)\nsecret\n".utf8).write(to: URL(filePath: path))
        guard chmod(path, 0o600) == 0 else { throw RecordingSink.Refused() }
    }
}

/// A bucket of a scripted store, and one upload for it.
struct BucketUnderTest {
    let id = UploadID(high: 1, low: 2)
    let origin: LoopbackOrigin
    let directory: ScratchDirectory
    var settings: UpstreamSettings
    let sink = RecordingSink()

    /// As sent; a directory would have "a b.txt".
    var key: String { "\(id)-a%20b.txt" }
    var keyFile: String { directory.file("key") }

    /// `response` gives the status line, fields and content for each request.
    init(
        prefix: String = "",
        _ response: @escaping @Sendable (LoopbackOrigin.Request) -> Answer
    ) throws {
        origin = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                let response = response(request)
                guard let status = response.status else { return }
                try connection.response(
                    status,
                    fields: response.fields,
                    content: response.content,
                    hasContent: request.method != "HEAD"
                )
            }
        }
        directory = try ScratchDirectory()
        settings = UpstreamSettings(targets: [try UpstreamTarget("s3:\(origin.base)/drop\(prefix)")]
        )
        settings.bucket.credentials = .file(directory.file("key"))
        try Bucket.writeKey(to: keyFile)
    }

    /// Without a status, the connection closes.
    struct Answer {
        var status: String?
        var fields: [String] = []
        var content = ""

        static let done = Answer(status: "200 OK")
        static let hangUp = Answer()
        static func error(_ status: String, _ code: String, fields: [String] = []) -> Answer {
            Answer(status: status, fields: fields, content: "<Error><Code>\(code)</Code></Error>")
        }
    }

    /// The response to HEAD of an upload's object with this length.
    static func object(_ id: UploadID, _ length: Int) -> Answer {
        Answer(
            status: "200 OK",
            fields: ["x-amz-meta-spoolgate-upload: \(id)"],
            content: String(repeating: "x", count: length)
        )
    }

    func put(
        _ content: UpstreamContent,
        _ fields: HTTPFields = [.contentType: "text/plain"],
        isUpload: Bool = true
    ) -> AttemptOutcome {
        let request = UpstreamRequest(
            method: .post,
            target: "/in/a%20b.txt?x",
            fields: fields,
            content: content,
            upload: isUpload ? id : nil
        )
        return Upstream(settings).attempt(request, sink: sink)
    }

    /// Method and target of every request, without the bucket.
    var asked: [String] {
        origin.requests.map { "\($0.method) \($0.target.replacing("/drop/", with: ""))" }
    }
}

@Suite("A bucket as the upstream")
struct BucketTests {
    private static let id = UploadID(high: 1, low: 2)

    @Test("an upload is one signed PUT that overwrites nothing, and 201")
    func put() throws {
        var test = try BucketUnderTest { _ in .done }
        test.settings.bucket.fields = [
            HTTPField(name: .made("x-amz-storage-class"), value: "STANDARD_IA")
        ]
        let fields: HTTPFields = [
            .contentType: "text/plain", .contentDisposition: "attachment;  filename=\"a b.txt\"",
            .contentEncoding: "gzip", .contentLanguage: "dé", .cookie: "secret", .accept: "*/*",
            .made("x-amz-acl"): "public-read", .made("x-amz-copy-source"): "/other/object",
            .made("x-amz-meta-spoolgate-upload"): "forged",
        ]
        #expect(test.put(.bytes(Array("hello\n".utf8)), fields) == .responded)
        #expect(test.asked == ["PUT \(test.key)"])
        let request = try #require(test.origin.requests.first)
        #expect(request.target == "/drop/\(test.key)")
        #expect(request.content == Array("hello\n".utf8))
        let expected = [
            "Content-Length": ["6"], "Content-Type": ["text/plain"],
            "Content-Disposition": ["attachment;  filename=\"a b.txt\""],
            "Content-Encoding": ["gzip"],
            // Non-ASCII values cannot be signed interoperably.
            "Content-Language": [], "If-None-Match": ["*"], "Cookie": [], "Accept": [],
            "x-amz-storage-class": ["STANDARD_IA"], "x-amz-acl": [], "x-amz-copy-source": [],
            "x-amz-meta-spoolgate-upload": ["\(test.id)"], "Transfer-Encoding": [], "Expect": [],
            "Host": [String(test.origin.base.dropFirst(7))],
            "x-amz-content-sha256": [
                "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
            ],
        ]
        for (name, values) in expected { #expect(request.values(name) == values, "\(name)") }
        let authorization = try #require(request.values("Authorization").first)
        #expect(authorization.hasPrefix("AWS4-HMAC-SHA256 Credential=KEY/"))
        #expect(authorization.contains("/us-east-1/s3/aws4_request,"))
        #expect(
            authorization.contains(
                // Without the field whose repeated spaces a store may collapse.
                "SignedHeaders=content-encoding;content-type;host;if-none-match;"
                    + "x-amz-content-sha256;x-amz-date;x-amz-meta-spoolgate-upload;"
                    + "x-amz-storage-class,"
            )
        )
        #expect(test.sink.head?.status == .created)
        #expect(test.sink.head?.fields[.location] == nil)
        #expect(test.sink.text == "{\"id\":\"\(test.id)\",\"name\":\"a b.txt\",\"length\":6}\n")
    }

    @Test(
        "a Content-Disposition reaches the object unchanged if it is ASCII, otherwise encoded",
        arguments: [
            ("attachment; filename=\"a b\"", "attachment; filename=\"a b\"", true),
            ("attachment; filename=\"a   b\"", "attachment; filename=\"a   b\"", false),
            (
                "inline; filename=\"\u{fc} b\"", "inline; filename*=UTF-8\'\'%C3%BC%20b", true
            ),
            ("\u{fc}; filename=x", "attachment; filename*=UTF-8\'\'x", true),
        ]
    )
    func disposition(told: String, sent: String, isSigned: Bool) throws {
        let test = try BucketUnderTest { _ in .done }
        #expect(test.put(.bytes([1]), [.contentDisposition: told]) == .responded)
        let request = try #require(test.origin.requests.first)
        #expect(request.values("Content-Disposition") == [sent])
        let authorization = try #require(request.values("Authorization").first)
        #expect(authorization.contains("content-disposition") == isSigned)
    }

    @Test("a key has the client's name, up to a key's maximum length")
    func names() throws {
        let long = String(repeating: "p", count: 890)
        for (prefix, name, kept) in [
            ("", "gr\u{fc}n.txt", "gr\u{fc}n.txt"), ("", "-x", "_x"), ("", ".x", "_x"),
            (
                "/" + long, String(repeating: "a", count: 300) + ".txt",
                String(repeating: "a", count: 102) + ".txt"
            ),
        ] {
            let test = try BucketUnderTest(prefix: prefix) { _ in .done }
            let disposition = "attachment; filename*=UTF-8\'\'" + PercentText.encode(name)
            #expect(test.put(.bytes([1]), [.contentDisposition: disposition]) == .responded)
            let key = (prefix.isEmpty ? "" : long + "/") + "\(test.id)-\(kept)"
            #expect(key.utf8.count <= 1024)
            #expect(
                test.origin.requests.first?.target.removingPercentEncoding == "/drop/" + key
            )
        }
    }

    @Test(
        "a prefix precedes the key, with every byte encoded that requires it",
        arguments: [
            ("/in", "in/"), ("/in/", "in/"), ("/a%20b/Ü%2Bx", "a%20b/%C3%9C%2Bx/"),
            ("/~._-/(1)", "~._-/%281%29/"), ("/100%25", "100%25/"),
        ]
    )
    func prefix(text: String, encoded: String) throws {
        let test = try BucketUnderTest(prefix: text) { _ in .done }
        #expect(test.put(.none) == .responded)
        #expect(test.asked == ["PUT \(encoded)\(test.key)"])
        #expect(test.origin.requests.first?.values("Content-Length") == ["0"])
        #expect(
            test.origin.requests.first?.values("x-amz-content-sha256") == [SignedContent.none.text]
        )
        guard let address = test.settings.store as? BucketAddress else {
            Issue.record("no bucket")
            return
        }
        #expect(try UpstreamTarget(address.text) == .bucket(address))
    }

    @Test(
        "without TLS a file is digested before it is sent, or a client's digest is used"
    )
    func digests() throws {
        let test = try BucketUnderTest { _ in .done }
        #expect(test.put(pattern(3_000_000)) == .responded)
        let told = Array(repeating: UInt8(7), count: 32)
        var values = DigestValues()
        values[.sha256] = told
        let fields: HTTPFields = [.reprDigest: values.fieldValue]
        #expect(test.put(pattern(10), fields) == .responded)
        var ofPart = fields
        ofPart[.contentRange] = "bytes 0-9/20"
        #expect(test.put(pattern(10), ofPart) == .responded)
        let signed = test.origin.requests.flatMap { $0.values("x-amz-content-sha256") }
        #expect(signed[0] == SignedContent.digest(try pattern(3_000_000).digest {}).text)
        #expect(signed[1] == SignedContent.digest(told).text)
        #expect(signed[2] == SignedContent.digest(try pattern(10).digest {}).text)
        #expect(test.origin.requests.map { isPattern($0.content) } == [true, true, true])
    }

    @Test("over TLS content is read once, and its signature omits it")
    func unsigned() throws {
        let authority = try TestAuthority()
        let server = try OpenSSLCommand(
            serving: authority.identity("localhost"),
            more: ["-quiet"]
        )
        let directory = try ScratchDirectory()
        try Bucket.writeKey(to: directory.file("key"))
        var settings = UpstreamSettings(
            targets: [try UpstreamTarget("s3:\(server.base)/drop")]
        )
        settings.tls.authorities = authority.certificate
        settings.bucket.credentials = .file(directory.file("key"))
        let served = server.respondOnce(
            contentLength: 100_000,
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        )
        let request = UpstreamRequest(
            method: .put,
            target: "/x",
            fields: [:],
            content: pattern(100_000),
            upload: Self.id
        )
        #expect(Upstream(settings).attempt(request, sink: RecordingSink()) == .responded)
        #expect(isPattern(try #require(served.content)))
        #expect(served.head?.contains("x-amz-content-sha256: UNSIGNED-PAYLOAD\r\n") == true)
    }

    @Test("in virtual-host style the bucket's name precedes the host's, and is not in the path")
    func virtualHost() throws {
        var test = try BucketUnderTest(prefix: "/incoming") { _ in .done }
        let port = try #require(test.origin.base.split(separator: ":").last)
        test.settings.targets = [try UpstreamTarget("s3:http://localhost:\(port)/drop/incoming")]
        test.settings.bucket.style = .virtualHost
        #expect(test.put(.bytes(Array("hello\n".utf8))) == .responded)
        let request = try #require(test.origin.requests.first)
        #expect(request.target == "/incoming/\(test.key)")
        #expect(request.values("Host") == ["drop.localhost:\(port)"])
        #expect(request.values("Authorization").first?.contains("SignedHeaders=") == true)
        #expect(try #require(test.settings.serverStore).fault(test.settings) == nil)
        #expect(test.origin.requests.last?.target == "/?list-type=2&max-keys=1")
    }

    @Test("a request that is no upload gets 405, and no store receives it")
    func others() throws {
        let test = try BucketUnderTest { _ in .done }
        #expect(test.put(.none, isUpload: false) == .responded)
        #expect(test.sink.head?.status == .methodNotAllowed)
        #expect(test.asked == [])
    }

    @Test("the key is read for each attempt, and without one nothing is sent")
    func rotation() throws {
        let test = try BucketUnderTest { _ in .done }
        #expect(test.put(.bytes([1])) == .responded)
        try Bucket.writeKey(to: test.keyFile, "OTHER")
        #expect(test.put(.bytes([1])) == .responded)
        let keys = test.origin.requests.flatMap { $0.values("Authorization") }
            .map { $0.contains("Credential=OTHER/") }
        #expect(keys == [false, true])
        #expect(unlink(test.keyFile) == 0)
        let outcome = test.put(.bytes([1]))
        #expect(outcome.isDeferred)
        #expect(outcome.reason.contains("read the access key: open \(test.keyFile)"))
        #expect(test.asked.count == 2)
    }

    // MARK: Existing objects

    @Test("412 means success if the existing object is this upload")
    func repeated() throws {
        let test = try BucketUnderTest {
            $0.method == "HEAD"
                ? BucketUnderTest.object(Self.id, 6) : .error("412 X", "Precondition")
        }
        #expect(test.put(.bytes(Array("hello\n".utf8))) == .responded)
        #expect(test.asked == ["PUT \(test.key)", "HEAD \(test.key)"])
        #expect(test.sink.head?.status == .created)
    }

    @Test(
        "412 for another object, or one that cannot be read, defers the upload",
        arguments: [
            (BucketUnderTest.object(id, 5), "is not this upload"),
            (BucketUnderTest.object(UploadID(high: 1, low: 3), 6), "is not this upload"),
            (.done, "is not this upload"), (.init(status: "403 F"), "s3:GetObject"),
            (.init(status: "404 N"), "cannot be read"),
        ]
    )
    func foreign(response: BucketUnderTest.Answer, words: String) throws {
        let test = try BucketUnderTest { $0.method == "HEAD" ? response : .error("412 X", "P") }
        let outcome = test.put(.bytes(Array("hello\n".utf8)))
        #expect(outcome.isDeferred)
        #expect(outcome.reason.contains(words), "\(outcome.reason)")
        #expect(test.sink.head == nil)
    }

    // MARK: Refusals

    @Test(
        "a store's refusal is never the client's response: the upload waits, and the log says why",
        arguments: [
            (BucketUnderTest.Answer.error("403 F", "SignatureDoesNotMatch"), "s3.credentials", nil),
            (.error("403 F", "AccessDenied"), "may put objects", nil),
            (.error("403 F", "RequestTimeTooSkewed"), "clock", nil),
            (.error("404 N", "NoSuchBucket"), "create the bucket", nil),
            (.error("400 B", "AuthorizationHeaderMalformed"), "s3.region", nil),
            (.error("301 M", "PermanentRedirect"), "region", nil),
            (.error("501 N", "NotImplemented"), "If-None-Match", nil),
            (.error("409 C", "ConditionalRequestConflict"), "409", nil),
            (.error("500 I", "InternalError"), "500 (InternalError)", nil),
            (.error("503 S", "SlowDown", fields: ["Retry-After: 7"]), "503 (SlowDown)", 7),
            (.init(status: "429 T", content: "later"), "responded with 429", nil),
            (.error("400 B", "x\u{1b}[2Jy"), "(an error without a code)", nil),
        ] as [(BucketUnderTest.Answer, String, Int?)]
    )
    func refused(response: BucketUnderTest.Answer, words: String, retryAfter: Int?) throws {
        let test = try BucketUnderTest { _ in response }
        let outcome = test.put(.bytes([1]))
        #expect(outcome.isDeferred && outcome.isUnsent && !outcome.timedOut)
        #expect(outcome.reason.contains(words), "\(outcome.reason)")
        #expect(outcome.reason.hasPrefix("POST /in/a%20b.txt"), "\(outcome.reason)")
        #expect(
            outcome.reason.contains(" to s3:\(test.origin.base)/drop: the store responded with ")
        )
        #expect(outcome.retryAfter == retryAfter)
        #expect(!outcome.reason.contains("KEY") && !outcome.reason.contains("secret\n"))
        #expect(test.sink.head == nil)
        let refusal = outcome.refusal(isRepeatable: true, isKept: true)
        #expect(refusal == .upstreamBusy(retryAfter: retryAfter))
        #expect(outcome.refusal(isRepeatable: false, isKept: false)?.isOrdinary == true)
    }

    @Test(
        "a full store is one",
        arguments: [
            BucketUnderTest.Answer.error("403 F", "QuotaExceeded"), .init(status: "507 I"),
        ]
    )
    func full(response: BucketUnderTest.Answer) throws {
        let test = try BucketUnderTest { _ in response }
        guard case .noRoom = test.put(.bytes([1])) else {
            Issue.record("not full")
            return
        }
    }

    @Test("a missing store was not reached, and one that hangs up leaves the outcome open")
    func transport() throws {
        let test = try BucketUnderTest { _ in .hangUp }
        #expect(test.put(.bytes([1])).isIndeterminate)
        test.origin.stop()
        try eventually("the port is closed") { test.put(.bytes([1])).isNotReached }
    }
}
