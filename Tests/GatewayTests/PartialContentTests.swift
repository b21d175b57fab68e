// Content that `Content-Range` marks as a part: never the whole, and never resumable.

import HTTPTypes
import SpoolgateDelivery
@testable import SpoolgateExchange
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateUpstream

@Suite struct PartialContentTests {
    /// A setting that makes a whole of content: a file, an object, a form, an inspection's input.
    enum Maker: CaseIterable {
        case directory, bucket, multipart, path, inspection

        func apply(to route: inout RouteSettings, _ origin: LoopbackOrigin) {
            if self != .directory { route.upstream.targets = [origin.target] }
            switch self {
            case .directory: break
            case .bucket:
                route.upstream.targets = [
                    .bucket(BucketAddress(endpoint: origin.base, name: "bucket"))
                ]
                route.upstream.bucket.credentials = .file("/nonexistent")
            case .multipart: route.form = .multipart
            case .path:
                route.form = .path
                route.path.directory = "/nonexistent"
                route.path.keyFile = "/nonexistent"
            case .inspection: route.inspection.command = ["/bin/true"]
            }
        }
    }

    @Test(
        "a part is refused unread if the gateway makes a file, object or form of it, or inspects it",
        arguments: Maker.allCases,
        [HTTPRequest.Method.put, .post, .patch]
    )
    func refused(by maker: Maker, method: HTTPRequest.Method) throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest { _, route in maker.apply(to: &route, origin) }
        for range in ["bytes 3-9/10", "bytes 3-9/*", "BYTES 3-9/10", "nonsense", ""] {
            for fields: HTTPFields in [[:], [.uploadComplete: "?1"], [.uploadComplete: "?0"]] {
                var fields = fields
                fields[.contentRange] = range
                let record = test.serve(ScriptedExchange(method, "/f", fields, ["3456789"]))
                #expect(record.status == 400, "\(fields)")
                #expect(record.text.contains("\"partial-content\""))
                #expect(!record.events.contains(.read))
            }
        }
        let fields: HTTPFields = [.methodOverride: "PUT", .contentRange: "bytes 3-9/10"]
        #expect(test.serve(ScriptedExchange(.delete, "/f", fields, ["3456789"])).status == 400)
        #expect(try test.drops().isEmpty)
        #expect(origin.requests.isEmpty)
        #expect(try test.summaries().isEmpty)
    }

    @Test("a form made by the client is unaffected, in parts too")
    func ownForm() throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target) { _, route in route.form = .multipart }
        let fields: HTTPFields = [
            .contentType: "multipart/form-data; boundary=x", .contentRange: "bytes 3-9/10",
        ]
        #expect(test.serve(ScriptedExchange(.post, "/f", fields, ["--x--"])).status == 200)
        #expect(origin.requests.first?.values("Content-Range") == ["bytes 3-9/10"])
    }

    @Test(
        "otherwise it passes as an ordinary request, with its field and without a digest of the whole",
        arguments: [OrdinaryUploads.spool, .pass],
        [nil, "?1"] as [String?]
    )
    func passes(ordinary: OrdinaryUploads, marker: String?) throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target) { _, route in
            route.ordinary = ordinary
            if ordinary == .spool { route.digest = .sha256 }
        }
        var fields: HTTPFields = [.contentRange: "bytes 3-9/10"]
        if let marker { fields[.uploadComplete] = marker }
        let context = ExchangeContext(interimStatuses: [104])
        let record = test.serve(
            ScriptedExchange(.put, "/f", fields, ["3456789"], context: context)
        )
        #expect(record.status == 200)
        #expect(record.interims.isEmpty && record.location == nil)
        let request = try #require(origin.requests.first)
        #expect(request.values("Content-Range") == ["bytes 3-9/10"])
        #expect(request.values("Repr-Digest") == [])
        #expect(request.content == Array("3456789".utf8))
        #expect(try test.summaries().isEmpty)
    }

    @Test("an accepted part keeps its field, and the whole's digest is not compared with it")
    func accepted() throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target) { _, route in
            route.reply = .accepted
            route.digest = .sha256
        }
        try test.gateway.deliveries.startQueue()
        let fields: HTTPFields = [
            .contentRange: "bytes 3-9/10",
            .reprDigest: "sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:",
        ]
        #expect(test.serve(ScriptedExchange(.put, "/f", fields, ["3456789"])).status == 202)
        try eventually("the upstream has it") { origin.requests.count == 1 }
        let request = try #require(origin.requests.first)
        #expect(request.values("Content-Range") == ["bytes 3-9/10"])
        #expect(request.values("Repr-Digest").count == 1)
    }

    @Test("an incomplete upload is not a part of another file")
    func notResumable() throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target)
        let part: HTTPFields = [.contentRange: "bytes 0-4/10"]
        let record = test.serve(.creation(complete: false, fields: part))
        #expect(record.status == 400 && record[.uploadComplete] == "?0")
        #expect(record.interims.isEmpty)
        for more: HTTPFields in [[.uploadLength: "5"], [.uploadConcat: "final;/a /b"]] {
            var fields = part
            fields.append(contentsOf: more)
            fields[.tusResumable] = "1.0.0"
            #expect(test.serve(ScriptedExchange(.post, "/f", fields)).status == 400)
        }
        #expect(try test.summaries().isEmpty)
        #expect(origin.requests.isEmpty)
    }

    @Test(
        "max-size applies to the whole, before it is read",
        arguments: [
            ("bytes 0-4/100", 200), ("bytes 0-4/101", 413), ("bytes 0-4/ 101 ", 413),
            ("bytes 99-103/*", 413), ("bytes 95-99/*", 200), ("bytes */101", 413),
            ("bytes 0-4/99999999999999999999999", 413), ("pieces 0-4/101", 413),
            ("bytes 0-4/9, bytes 0-4/101", 413), ("nonsense", 200), ("bytes 0-4/-101", 200),
        ],
        [OrdinaryUploads.spool, .pass]
    )
    func total(range: (value: String, status: Int), ordinary: OrdinaryUploads) throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target) { _, route in
            route.limits.maxSize = 100
            route.ordinary = ordinary
            route.tus = .pass
        }
        for fields: HTTPFields in [[:], [.uploadComplete: "?1"], [.tusResumable: "1.0.0"]] {
            var fields = fields
            fields[.contentRange] = range.value
            let record = test.serve(ScriptedExchange(.put, "/f", fields, ["01234"]))
            #expect(record.status == range.status, "\(fields)")
            if range.status == 413 { #expect(!record.events.contains(.read)) }
        }
        let lines =
            [HTTPField(name: .contentRange, value: "bytes 0-4/9")]
            + [HTTPField(name: .contentRange, value: range.value)]
        let record = test.serve(ScriptedExchange(.put, "/f", HTTPFields(lines), ["01234"]))
        #expect(record.status == range.status)
    }
}
