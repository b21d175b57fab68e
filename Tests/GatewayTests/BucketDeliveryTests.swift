// Uploads to a bucket: any method is retried; clients never receive the store's own refusal.

import Foundation
import HTTPTypes
import SpoolgateExchange
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateRequests
@testable import SpoolgateSettings

@Suite struct BucketDeliveryTests {
    private struct Stage {
        let origin: LoopbackOrigin
        let test: GatewayUnderTest
        private let keys: ScratchDirectory

        init(_ script: @escaping LoopbackOrigin.Script) throws {
            origin = try LoopbackOrigin(script)
            let keys = try ScratchDirectory()
            self.keys = keys
            let key = keys.file("key")
            try Data("id\nsecret\n".utf8).write(to: URL(filePath: key))
            try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: key)
            test = try GatewayUnderTest(try UpstreamTarget("s3:\(origin.base)/drop")) { _, route in
                route.upstream.bucket.credentials = .file(key)
            }
        }
    }

    @Test("a POST with a lost response is kept, sent again, and recognized by the stored object")
    func lost() throws {
        let stage = try Stage { connection in
            while let request = try connection.receiveRequest() {
                // The first PUT is stored, and its response is lost.
                if connection.requests.count == 1 { return }
                guard request.method == "HEAD" else {
                    try connection.response("412 Precondition Failed")
                    continue
                }
                let id = request.target.split(separator: "/").last?.prefix(26) ?? ""
                try connection.response(
                    "200 OK",
                    fields: ["x-amz-meta-spoolgate-upload: \(id)"],
                    content: "hello",
                    hasContent: false
                )
            }
        }
        let location = stage.test.createPartial(uploadLength: 5)
        let first = stage.test.serve(.append(location, at: 5))
        #expect(first.status == 502)
        #expect(first[.uploadComplete] == "?0")
        let second = stage.test.serve(.append(location, at: 5))
        #expect(second.status == 201)
        #expect(second[.uploadComplete] == "?1")
        #expect(stage.origin.requests.map(\.method) == ["PUT", "PUT", "HEAD"])
        #expect(stage.origin.requests[0].content == Array("hello".utf8))
        #expect(stage.test.serve(.append(location, at: 5)).status == 201)
        #expect(stage.origin.requests.count == 3)
    }

    @Test(
        "a store's refusal is not the client's: the upload stays, and an ordinary one gets 503",
        arguments: ["403 Forbidden", "404 Not Found", "409 Conflict", "503 Slow Down"]
    )
    func refused(status: String) throws {
        let stage = try Stage { connection in
            while try connection.receiveRequest() != nil {
                try connection.response(status, fields: ["Retry-After: 9"])
            }
        }
        let location = stage.test.createPartial(uploadLength: 5)
        let record = stage.test.serve(.append(location, at: 5))
        #expect(record.status == 503)
        #expect(record[.uploadComplete] == "?0")
        #expect(record[.made("retry-after")] == "9")
        #expect(stage.test.log.text.contains("the store responded with \(status.prefix(3))"))
        let ordinary = stage.test.serve(.creation(["x"], version: nil, context: .empty))
        #expect(ordinary.status == 503)
        #expect(stage.origin.requests.count == 2)
    }
}
