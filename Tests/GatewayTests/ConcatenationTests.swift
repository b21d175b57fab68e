// Uploads joined from parts (tus, "concatenation") after an interrupted attempt.

import HTTPTypes
import SpoolgateDelivery
import SpoolgateExchange
import SpoolgatePosix
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

@Suite("Concatenation")
struct ConcatenationTests {
    private func make(_ contents: [String]) throws -> (test: GatewayUnderTest, parts: [String]) {
        let test = try GatewayUnderTest()
        let parts = try contents.map { content in
            let record = test.serve(
                ScriptedExchange(
                    .post,
                    "/files",
                    [
                        .tusResumable: Tus.version, .uploadConcat: "partial",
                        .uploadLength: "\(content.utf8.count)", .contentType: Tus.mediaType,
                    ],
                    [.bytes(Array(content.utf8))]
                )
            )
            return try #require(record.location)
        }
        return (test, parts)
    }

    private func head(_ parts: [String]) -> RequestHead {
        RequestHead(
            method: .post,
            target: "/files",
            fields: [
                .tusResumable: Tus.version, .uploadConcat: "final;" + parts.joined(separator: " "),
            ],
            contentLength: .known(0)
        )
    }

    private func join(_ parts: [String], in test: GatewayUnderTest) -> Int? {
        let head = head(parts)
        return test.serve(ScriptedExchange(.post, "/files", head.fields, [], length: .known(0)))
            .status
    }

    /// Leaves the state of a crash before the parts were consumed; `content` makes the joined upload complete.
    private func leave(
        _ content: String?,
        of parts: [String],
        in test: GatewayUnderTest
    ) throws -> UploadID {
        let id = UploadID.random()
        var creation = UploadCreation(
            id: id,
            route: RouteSettings.defaultName,
            head: head(parts),
            created: .now
        )
        creation.resourcePath = "/files/\(id)"
        let upload = try test.spool.create(creation, requestRelease: {})
        for part in parts { try test.withUpload(part) { try $0.goInto(id) } }
        if let content {
            try upload.append(Array(content.utf8).span.bytes)
            try upload.postpone(reason: nil, .client(.now))
        }
        upload.unlock()
        return id
    }

    @Test(
        "a partial upload belongs to one upload, also after an earlier list has left the others reserved"
    )
    func inOneUpload() throws {
        let (test, parts) = try make(["one", "two", "three"])
        try test.withUpload(parts[0]) { try $0.goInto(.random()) }
        let whole = try leave("twothree", of: Array(parts[1...]), in: test)
        #expect(join(Array(parts[...1]), in: test) == 410)
        #expect(try test.queue(of: parts[1]) == .incoming)
        #expect(try test.drops().isEmpty)
        #expect(join(Array(parts[1...]), in: test) == 201)
        #expect(try test.drops() == [Array("twothree".utf8)])
        #expect(try test.queue(of: "\(whole)") == .delivered)
        #expect(try test.queue(of: parts[1]) == .delivered)
        #expect(try test.queue(of: parts[0]) == .incoming)
    }

    @Test("an unfinished concatenation has consumed no partial upload")
    func halfMade() throws {
        let (test, parts) = try make(["one", "two"])
        let half = try leave(nil, of: parts, in: test)
        #expect(join(parts.reversed(), in: test) == 201)
        #expect(try test.drops() == [Array("twoone".utf8)])
        #expect(try test.queue(of: "\(half)") == nil)
        #expect(join(parts, in: test) == 410)
    }

    @Test("partial uploads are consumed before the queue delivers the result")
    func queuedByOperator() throws {
        let (test, parts) = try make(["one", "two"])
        let whole = try leave("onetwo", of: parts, in: test)
        func runQueue() throws {
            try test.withUpload("\(whole)") { upload in
                try #require(test.gateway.deliveries.delivery(of: upload)).deliverQueued(upload)
            }
        }
        try test.withUpload("\(whole)") { try $0.requeue(at: .now) }
        try test.withUpload(parts[1]) { _ in try runQueue() }
        #expect(try test.drops().isEmpty, "while a part is in use")
        try runQueue()
        #expect(try test.drops() == [Array("onetwo".utf8)])
        try test.withUpload("\(whole)") { try $0.remove(durably: true) }
        #expect(join(parts, in: test) == 410)
    }

    @Test("the promise for the partial uploads holds for the result", arguments: [true, false])
    func promise(isLess: Bool) throws {
        let (test, parts) = try make(["one", "two"])
        test.reload { settings in
            settings.routes[RouteSettings.defaultName]?.promise = isLess ? .process : .powerCut
        }
        #expect(join(parts, in: test) == 201)
        let joined = try #require(
            try test.summaries().first { $0.creation?.promise != nil && $0.offset == 6 }
        )
        #expect(joined.creation?.promise == .powerCut)
    }
}
