// Uploads into the bucket of a real store that checks signatures.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@Suite(
    "A bucket",
    .enabled(if: ObjectGateway.isInstalled, "Ceph's radosgw, mon and osd are not installed"),
    .serialized,
    .sharedStore
)
struct BucketTests {
    private static let quick = "queue: {minimum-backoff: 1s, maximum-backoff: 1s}"

    private final class Stage {
        let sandbox: Sandbox
        let keyFile: String

        init(_ target: String, _ routeSettings: [String] = []) throws {
            let directory = try ScratchDirectory()
            keys = directory
            keyFile = directory.file("s3.key")
            try Self.write(ObjectGateway.secret, to: keyFile)
            sandbox = try Sandbox(
                upstream: "s3:\(target)",
                routeSettings: [
                    "s3: {credentials: \(keyFile)}", BucketTests.quick,
                ] + routeSettings
            )
        }

        private let keys: ScratchDirectory

        static func write(_ secret: String, to file: String) throws {
            try "\(ObjectGateway.keyID)\n\(secret)\n"
                .write(toFile: file, atomically: true, encoding: .utf8)
            guard chmod(file, 0o600) == 0 else { throw WireClient.Broken(description: "chmod") }
        }

        func upload(
            _ target: String,
            _ content: Data,
            _ fields: [String] = []
        ) throws -> (id: String, resource: String, response: WireClient.Answer) {
            let resource = try sandbox.create(target, fields)
            let id = String(resource.split(separator: "/").last ?? "")
            return (id, resource, try sandbox.append(resource, content))
        }
    }

    // MARK: Stored objects

    @Test("a key from the environment stores objects in a bucket named by the host")
    func environment() throws {
        let bucket = try SharedStore.bucket("named")
        let port = try #require(bucket.url.firstMatch(of: /:([0-9]+)\//)?.1)
        let sandbox = try Sandbox(
            upstream: "s3:http://localhost:\(port)/named/in",
            routeSettings: [
                "s3: {credentials: environment, style: virtual-host}", Self.quick,
            ],
            launcher: [
                "/usr/bin/env", "AWS_ACCESS_KEY_ID=\(ObjectGateway.keyID)",
                "AWS_SECRET_ACCESS_KEY=\(ObjectGateway.secret)",
            ]
        )
        let content = Data("content".utf8)
        let resource = try sandbox.create("/files/a.bin", [])
        #expect(try sandbox.append(resource, content).status == 201)
        let id = String(resource.split(separator: "/").last ?? "")
        #expect(try bucket.content("in/\(id)-a.bin") == content)
    }

    @Test("uploads are stored unchanged, of every length and under every name")
    func stored() throws {
        let bucket = try SharedStore.bucket("stored")
        let stage = try Stage("\(bucket.url)/in%20coming/Ü+(1)/")
        let encoded = "in%20coming/%C3%9C%2B%281%29/"
        let names = [("plain.txt", "plain.txt"), ("%C3%BC%20%26%20%20b.txt", "ü &  b.txt")]
        for (name, kept) in names {
            let content = Data("content of \(name)".utf8)
            let (id, _, response) = try stage.upload(
                "/files/\(name)",
                content,
                [
                    "Content-Type: text/x-test",
                    "Content-Disposition: attachment; filename*=UTF-8''\(name)",
                    "x-amz-acl: public-read", "x-amz-copy-source: /drop/other",
                ]
            )
            #expect(response.status == 201)
            #expect(
                response.text
                    == "{\"id\":\"\(id)\",\"name\":\"\(kept)\",\"length\":\(content.count)}\n"
            )
            let key = "\(encoded)\(id)-\(name)"
            #expect(try bucket.content(key) == content)
            let fields = try bucket.fields(key)
            #expect(fields.contains("content-type: text/x-test\r\n"))
            #expect(fields.contains("x-amz-meta-spoolgate-upload: \(id)\r\n"))
            #expect(fields.contains("content-disposition: attachment; filename*=utf-8''"))
        }
        #expect(try bucket.keys().allSatisfy { $0.hasPrefix("in coming/Ü+(1)/") })
        // Fields that not every store signs alike.
        for (disposition, key, kept) in [
            (
                "attachment;  filename=\"a   b.txt\"", "a%20%20%20b.txt",
                "attachment;  filename=\"a   b.txt\""
            ),
            ("inline; filename=\"ü.txt\"", "%C3%BC.txt", "inline; filename*=utf-8''%c3%bc.txt"),
        ] {
            let (id, _, response) = try stage.upload(
                "/files/x",
                Data([1]),
                ["Content-Disposition: \(disposition)"]
            )
            #expect(response.status == 201, "\(stage.sandbox.log.suffix(1_000))")
            let fields = try bucket.fields("\(encoded)\(id)-\(key)")
            #expect(fields.contains("content-disposition: \(kept)\r\n"), "\(fields)")
        }
        let (id, _, response) = try stage.upload("/files/empty", Data())
        #expect(response.status == 201)
        #expect(try bucket.fields("\(encoded)\(id)-empty").contains("content-length: 0\r\n"))
        let small = try stage.sandbox.ask("PUT", "/files/small.bin", content: Data([1, 2, 3]))
        #expect(small.status == 201)
        let hello = try stage.sandbox.ask(
            "PUT",
            "/files/hello",
            ["Repr-Digest: sha-256=:WJG1tSLV3whtD/CxEPvZ0hu0/HFjrzTQgoai6Eb2vgM=:"],
            content: Data("hello\n".utf8)
        )
        #expect(hello.status == 201)
        #expect(try bucket.keys().count == names.count + 5)
        #expect(try stage.sandbox.ask("GET", "/files/small.bin").status == 405)
    }

    @Test("200 MB are stored by one request, in little memory")
    func large() throws {
        let bucket = try SharedStore.bucket("large")
        let stage = try Stage(bucket.url)
        let (file, bytes) = try stage.sandbox.randomFile(200_000_000)
        let sent = try stage.sandbox.curl([
            "-T", file.path(), "-H", "Upload-Complete: ?1", "-w", "%{http_code}", "-o", "/dev/null",
            "http://127.0.0.1:\(stage.sandbox.port)/files/large.bin",
        ])
        #expect(sent.output == "201", "\(sent.errors); \(stage.sandbox.log.suffix(1_000))")
        let keys = try bucket.keys()
        #expect(keys.count == 1)
        #expect(try bucket.content(try #require(keys.first)) == bytes)
        #expect(try bucket.begun() == 0)
        #expect(stage.sandbox.daemon.footprint().rss < 150_000)
    }

    /// The daemon sends parts of 1 GiB; this test sends smaller ones.
    @Test("an upload is stored in parts, once", arguments: [BucketStyle.path, .virtualHost])
    func parts(style: BucketStyle) throws {
        let bucket = try SharedStore.bucket("parts-\(style.rawValue)")
        let keys = try ScratchDirectory()
        try Stage.write(ObjectGateway.secret, to: keys.file("s3.key"))
        let url = bucket.url.replacing("127.0.0.1", with: "localhost")
        var settings = UpstreamSettings(targets: [try UpstreamTarget("s3:\(url)")])
        settings.bucket.credentials = .file(keys.file("s3.key"))
        settings.bucket.style = style
        settings.bucket.partSize = 5 << 20
        let bytes = (0..<12_000_000).map { UInt8(truncatingIfNeeded: $0 * 13) }
        let content = UpstreamContent.file(descriptor: nil, length: 12_000_000) {
            buffer,
            position in
            let rest = bytes[Int(position)...].prefix(buffer.count)
            buffer.copyBytes(from: rest)
            return rest.count
        }
        let id = UploadID(high: 1, low: 2)
        for _ in 0..<2 {
            let outcome = Upstream(settings).attempt(
                UpstreamRequest(
                    method: .put,
                    target: "/a.bin",
                    fields: [:],
                    content: content,
                    upload: id
                ),
                sink: Ignorance()
            )
            #expect(outcome == .responded)
            #expect(try bucket.content("\(id)-a.bin") == Data(bytes))
        }
        #expect(try bucket.keys().count == 1)
        #expect(try bucket.begun() == 0)
    }

    private final class Ignorance: ResponseSink {
        func receive(interim head: ResponseHead) {}
        func receive(head: ResponseHead, contentLength: Int64?) {}
        func receive(content: RawSpan) {}
    }

    // MARK: Refusals

    @Test("a wrong secret defers with its cause; the right one delivers without a restart")
    func wrongSecret() throws {
        let bucket = try SharedStore.bucket("refused")
        let stage = try Stage(bucket.url)
        try Stage.write("wrong", to: stage.keyFile)
        let content = Data("x".utf8)
        let (_, resource, response) = try stage.upload("/files/a", content)
        #expect(response.status == 503)
        #expect(response["upload-complete"] == "?0")
        #expect(!response.text.contains("127.0.0.1"))
        let log = stage.sandbox.log
        #expect(log.contains("the store responded with 403 (SignatureDoesNotMatch)"))
        #expect(log.contains("s3.credentials"))
        for secret in ["wrong", ObjectGateway.keyID] { #expect(!log.contains(secret)) }
        try Stage.write(ObjectGateway.secret, to: stage.keyFile)
        #expect(try stage.sandbox.append(resource, offset: 1).status == 201)
        #expect(try bucket.keys().count == 1)
    }

    @Test("a missing bucket defers, and the queue delivers once it exists")
    func missingBucket() throws {
        let store = try SharedStore.bucket("earlier").store
        let stage = try Stage("\(store.url)/later", ["reply: accepted"])
        let (_, _, response) = try stage.upload("/files/a", Data("x".utf8))
        #expect(response.status == 202)
        try eventually("deferred") {
            stage.sandbox.log.contains("(NoSuchBucket); create the bucket")
        }
        try store.ask("PUT", "/later")
        try eventually("delivered; \(stage.sandbox.log.suffix(1_000))") {
            stage.sandbox.log.contains(" msg=\"upload delivered\" ")
        }
        #expect(try store.ask("GET", "/later").contains("-a</Key>"))
    }

    @Test("an object that already has an upload's key is not overwritten, and the upload waits")
    func foreign() throws {
        let bucket = try SharedStore.bucket("foreign")
        let stage = try Stage(bucket.url)
        let resource = try stage.sandbox.create("/files/a")
        let key = "\(resource.split(separator: "/").last ?? "")-a"
        try bucket.store.ask("PUT", "/\(bucket.name)/\(key)", "-d", "other")
        #expect(try bucket.keys() == [key])
        let before = try bucket.content(key)
        #expect(try stage.sandbox.append(resource, Data("mine!".utf8)).status == 503)
        #expect(stage.sandbox.log.contains("is not this upload; move it away"))
        #expect(try bucket.content(key) == before)
        try bucket.store.ask("DELETE", "/\(bucket.name)/\(key)")
        #expect(try stage.sandbox.append(resource, offset: 5).status == 201)
        #expect(try bucket.content(key) == Data("mine!".utf8))
    }

    @Test("check --live reports whether the store knows the key and the bucket, and stores nothing")
    func checked() throws {
        let bucket = try SharedStore.bucket("checked")
        func check(_ target: String) throws -> String {
            let stage = try Stage(target)
            return try stage.sandbox.spoolgate("check", "--live").output
        }
        #expect(
            try check(bucket.url).contains(
                "default: bucket checked at \(bucket.store.url) accepts the key"
            )
        )
        #expect(try check("\(bucket.store.url)/none").contains("(NoSuchBucket)"))
        let stage = try Stage(bucket.url)
        try Stage.write("wrong", to: stage.keyFile)
        let refused = try stage.sandbox.spoolgate("check", "--live")
        #expect(refused.output.contains("the store responded with 403 (SignatureDoesNotMatch)\n"))
        #expect(refused.output.contains("check the key in s3.credentials and s3.region"))
        #expect(refused.status == 69)
        #expect(try bucket.keys().isEmpty)
    }

    // MARK: Lost responses

    @Test(
        "after a lost response or a crash of the daemon the object exists once and is recognized",
        arguments: [false, true]
    )
    func lostAnswer(isKilled: Bool) throws {
        let bucket = try SharedStore.bucket("lost-\(isKilled)")
        let loss = Monitor(LostAnswers())
        let way = try Self.losing(loss, to: bucket.store.port)
        let stage = try Stage("\(way.base)/\(bucket.name)", ["reply: accepted"])
        let (_, content) = try stage.sandbox.randomFile(12_000_000)
        // A POST is retried as well, which is safe for a bucket.
        let (id, _, response) = try stage.upload("/files/a", content)
        #expect(response.status == 202)
        try eventually("the store has it") { loss.update { $0.isHeld } }
        #expect(try bucket.keys() == ["\(id)-a"])
        if isKilled { try stage.sandbox.crash() }
        loss.update { $0.isReleased = true }
        try eventually("delivered; \(stage.sandbox.log.suffix(1_000))") {
            stage.sandbox.log.contains(" msg=\"upload delivered\" ")
        }
        #expect(try bucket.keys() == ["\(id)-a"])
        #expect(try bucket.content("\(id)-a") == content)
        #expect(try bucket.begun() == 0)
        #expect(way.requests.last?.method == "HEAD")
    }

    @Test(
        "a daemon that dies during a delivery to the store delivers again, and the object exists once"
    )
    func killed() throws {
        let bucket = try SharedStore.bucket("killed")
        let proxy = try CuttingProxy(to: bucket.store.port)
        let stage = try Stage("http://127.0.0.1:\(proxy.port)/\(bucket.name)", ["reply: accepted"])
        let (_, content) = try stage.sandbox.randomFile(12_000_000)
        for round in 1...3 {
            // The cut resets a kept connection's count, which is already above the limit.
            proxy.cut()
            proxy.restore()
            proxy.hold(at: 1_000_000 * round)
            let before = proxy.passed
            let (id, _, response) = try stage.upload("/files/a", content)
            #expect(response.status == 202)
            try eventually("the delivery has started") {
                proxy.passed - before >= 1_000_000 * round
            }
            stage.sandbox.kill()
            #expect(try bucket.keys().count == round - 1)
            proxy.hold(at: nil)
            try stage.sandbox.startAgain()
            try eventually("delivered; \(stage.sandbox.log.suffix(1_000))") {
                try bucket.keys().contains("\(id)-a")
            }
            #expect(try bucket.content("\(id)-a") == content)
        }
        try eventually("three deliveries are logged") {
            stage.sandbox.log.matches(of: /\ msg="upload delivered"\ /).count == 3
        }
    }

    /// The first success response, which is held and then lost.
    private struct LostAnswers {
        var isHeld = false
        var isReleased = false
    }

    /// Starts a proxy that loses one of the store's responses.
    private static func losing(_ loss: Monitor<LostAnswers>, to port: Int) throws -> LoopbackOrigin
    {
        try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                let store = try StreamSocket(connectedTo: .port(UInt16(port)), patience: 300)
                defer { store.close() }
                let head = [request.line] + request.fieldLines + ["Connection: close", "", ""]
                guard store.send(Array(head.joined(separator: "\r\n").utf8) + request.content)
                else { return }
                var response: [UInt8] = []
                while let part = store.receive(), !part.isEmpty { response += part }
                let isLost = loss.update { loss in
                    guard request.method == "PUT", !loss.isHeld else { return false }
                    loss.isHeld = true
                    return true
                }
                if isLost {
                    _ = loss.wait(until: .after(.seconds(300))) { $0.isReleased ? true : nil }
                    return
                }
                try connection.send(response)
            }
        }
    }
}
