// Uploads stored in a bucket in parts.

import Foundation
import HTTPTypes
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Synchronization
import Testing

@testable import SpoolgateUpstream

@Suite("A bucket as the upstream, in parts")
struct MultipartUploadTests {
    private static let id = UploadID(high: 1, low: 2)
    private static let length: Int64 = 250_000

    /// Accepts an upload in parts, except for requests to which `response` responds.
    private func store(
        _ response: @escaping @Sendable (LoopbackOrigin.Request) -> BucketUnderTest.Answer?
    ) throws -> BucketUnderTest {
        var test = try BucketUnderTest { request in
            if let response = response(request) { return response }
            let query = request.target.split(separator: "?").dropFirst().first ?? ""
            switch (request.method, query) {
            case ("HEAD", _): return .init(status: "404 Not Found")
            case ("POST", "uploads="):
                return .init(
                    status: "200 OK",
                    content: "<?xml version=\"1.0\"?><InitiateMultipartUploadResult>"
                        + "<UploadId>2~a/b</UploadId></InitiateMultipartUploadResult>"
                )
            case ("PUT", _):
                return .init(
                    status: "200 OK",
                    fields: ["ETag: \"t\(query.dropFirst(11).prefix(1))\""]
                )
            case ("POST", _):
                return .init(
                    status: "200 OK",
                    content: " <CompleteMultipartUploadResult></CompleteMultipartUploadResult>"
                )
            default: return .init(status: "204 No Content")
            }
        }
        test.settings.bucket.partSize = 100_000
        test.settings.bucket.pauses = [.milliseconds(1), .milliseconds(1)]
        return test
    }

    private static let begin = "POST ?uploads="
    private static let name = "uploadId=2~a%2Fb"
    private static func part(_ number: Int) -> String { "PUT ?partNumber=\(number)&\(name)" }

    private func asked(_ test: BucketUnderTest) -> [String] {
        test.asked.map { $0.replacing(test.key, with: "") }
    }

    @Test("it is looked up, begun, sent part by part and completed without overwriting")
    func whole() throws {
        var test = try store { _ in nil }
        test.settings.bucket.fields = [HTTPField(name: .made("x-amz-acl"), value: "private")]
        #expect(test.put(pattern(Self.length)) == .responded)
        #expect(
            asked(test) == [
                "HEAD ", Self.begin, Self.part(1), Self.part(2), Self.part(3), "POST ?\(Self.name)",
            ]
        )
        let requests = test.origin.requests
        #expect(requests[1].values("Content-Type") == ["text/plain"])
        #expect(requests[1].values("x-amz-acl") == ["private"])
        #expect(requests[1].values("x-amz-meta-spoolgate-upload") == ["\(test.id)"])
        #expect(requests[2...4].map(\.contentLength) == [100_000, 100_000, 50_000])
        #expect(isPattern(requests[2...4].flatMap(\.content)))
        #expect(requests[2].values("x-amz-meta-spoolgate-upload") == [])
        #expect(requests[2].values("If-None-Match") == [])
        #expect(requests[5].values("If-None-Match") == ["*"])
        #expect(
            String(decoding: requests[5].content, as: UTF8.self)
                == "<CompleteMultipartUpload>"
                + (1...3).map {
                    "<Part><PartNumber>\($0)</PartNumber><ETag>\"t\($0)\"</ETag></Part>"
                }.joined() + "</CompleteMultipartUpload>"
        )
        #expect(test.sink.head?.status == .created)
        #expect(test.sink.text.contains("\"length\":\(Self.length)}"))
    }

    @Test("parts left by an attempt of unknown outcome are not sent again")
    func isThere() throws {
        let test = try store {
            $0.method == "HEAD" ? BucketUnderTest.object(Self.id, Int(Self.length)) : nil
        }
        #expect(test.put(pattern(Self.length)) == .responded)
        #expect(asked(test) == ["HEAD "])
        let other = try store { $0.method == "HEAD" ? .done : nil }
        #expect(other.put(pattern(Self.length)).reason.contains("is not this upload"))
        #expect(asked(other) == ["HEAD "])
    }

    @Test(
        "a failed part ends the attempt, and the sent parts are removed",
        arguments: [
            BucketUnderTest.Answer.error("503 S", "SlowDown"), .init(status: "200 OK"),
            .init(status: "200 OK", fields: ["ETag: <x>"]), .hangUp,
        ]
    )
    func part(response: BucketUnderTest.Answer) throws {
        let test = try store { $0.target.contains("partNumber=2") ? response : nil }
        let outcome = test.put(pattern(Self.length))
        #expect(response.status == nil ? outcome.isIndeterminate : outcome.isDeferred)
        // A part refused temporarily or without a response was sent again.
        let isRepeated = response.status == nil || response.status == "503 S"
        #expect(asked(test).count { $0 == Self.part(2) } >= (isRepeated ? 3 : 1))
        let asked = asked(test).filter { $0 != Self.part(2) }
        #expect(asked == ["HEAD ", Self.begin, Self.part(1), "DELETE ?\(Self.name)"])
        #expect(test.sink.head == nil)
    }

    @Test(
        "a temporary refusal is retried alone: a part, the beginning, the completion",
        arguments: [
            BucketUnderTest.Answer.error("503 S", "SlowDown"), .init(status: "500 I"),
            .error("429 T", "x", fields: ["Retry-After: 0"]), .init(status: "502 B"), .hangUp,
            .error("400 B", "RequestTimeout"), .error("200 OK", "InternalError"),
        ],
        ["uploads=", "partNumber=1", "partNumber=2", "partNumber=3", "?uploadId"]
    )
    func repeated(response: BucketUnderTest.Answer, request: String) throws {
        let failures = Mutex(0)
        let test = try store { asked in
            guard asked.target.contains(request), asked.method != "HEAD" else { return nil }
            return failures.withLock {
                $0 += 1
                return $0 == 1 ? response : nil
            }
        }
        #expect(test.put(pattern(Self.length)) == .responded)
        var whole = [
            "HEAD ", Self.begin, Self.part(1), Self.part(2), Self.part(3), "POST ?\(Self.name)",
        ]
        let index = try #require(whole.firstIndex { $0.contains(request) })
        whole.insert(whole[index], at: index)
        #expect(asked(test) == whole)
    }

    @Test("parts joined by a completion without a response are found")
    func completedUnheard() throws {
        let completions = Mutex(0)
        let test = try store { request in
            if request.method == "POST", request.target.contains("?uploadId") {
                return completions.withLock {
                    $0 += 1
                    return $0 == 1 ? .hangUp : .error("404 N", "NoSuchUpload")
                }
            }
            let isEnded = completions.withLock { $0 > 1 }
            return request.method == "HEAD" && isEnded
                ? BucketUnderTest.object(Self.id, Int(Self.length)) : nil
        }
        #expect(test.put(pattern(Self.length)) == .responded)
        #expect(test.origin.requests.allSatisfy { $0.method != "DELETE" })
    }

    @Test("content that cannot be read to its end is removed as well")
    func unreadable() throws {
        let test = try store { _ in nil }
        let content = UpstreamContent.file(descriptor: nil, length: Self.length) {
            guard $1 < 150_000 else { throw RecordingSink.Refused() }
            return $0.count
        }
        #expect(test.put(content).isPeerGone)
        #expect(asked(test).last == "DELETE ?\(Self.name)")
    }

    /// The response to completion, and the expected requests after it.
    struct Ending: Sendable {
        var response: BucketUnderTest.Answer
        var isDone = false
        var words = "POST"
        var after: [String] = []
    }

    @Test(
        "completing may fail with any status; parts stay if the store may still join them",
        arguments: [
            Ending(response: .error("200 OK", "InternalError"), words: "200 (InternalError)"),
            Ending(response: .error("500 I", "InternalError"), words: "500"),
            Ending(response: .hangUp),
            Ending(
                response: .error("400 B", "InvalidPart"),
                words: "InvalidPart",
                after: ["DELETE"]
            ),
            Ending(response: .error("412 P", "P"), isDone: true, after: ["DELETE", "HEAD"]),
        ]
    )
    func completing(ending: Ending) throws {
        let test = try store { request in
            if request.method == "POST", request.target.contains("uploadId") {
                return ending.response
            }
            // The object was stored after the first check.
            let isSecond = request.method == "HEAD" && request.number > 1
            return isSecond ? BucketUnderTest.object(Self.id, Int(Self.length)) : nil
        }
        let outcome = test.put(pattern(Self.length))
        #expect((outcome == .responded) == ending.isDone)
        #expect(ending.isDone || outcome.reason.contains(ending.words), "\(outcome.reason)")
        if ending.response.status == nil { #expect(outcome.isIndeterminate) }
        let after = test.origin.requests.suffix(ending.after.count).map(\.method)
        #expect(after == ending.after)
        #expect(
            test.origin.requests.count(where: { $0.method == "DELETE" })
                == ending.after.count(where: { $0 == "DELETE" })
        )
    }

    @Test(
        "parts grow so that their number stays within a store's limit",
        arguments: [
            (20_000, 10, 10), (100_000, 10, 10), (100_001, 10, 11),
            (5 << 40, 1 << 30, 1 << 30), (5 << 40, 5 << 20, 549_755_814),
        ] as [(Int64, Int64, Int64)]
    )
    func size(length: Int64, wanted: Int64, size: Int64) {
        #expect(MultipartUpload.partSize(of: length, wanted: wanted) == size)
    }
}
