// Digests through a real web server and crashes: unverified content never counts as received.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("Digests", .enabled(if: Command.find("nginx") != nil, "nginx is not installed"))
struct DigestTests {
    private func field(of data: Data, in sandbox: Sandbox) throws -> String {
        let file = sandbox.directory.appending(path: "digested-\(UUID().uuidString)")
        try data.write(to: file)
        let digest = sandbox.directory.appending(path: "digest-\(UUID().uuidString)")
        let made = try Command(
            "/usr/bin/openssl",
            ["dgst", "-sha256", "-binary", "-out", digest.path(), file.path()]
        )
        #expect(made.status == 0)
        return "sha-256=:\(try Data(contentsOf: digest).base64EncodedString()):"
    }

    @Test("kill -9 during content with a digest leaves the upload at its old offset")
    func killed() throws {
        let sandbox = try Sandbox()
        let (_, bytes) = try sandbox.randomFile(3 << 20)
        let resource = try sandbox.create("/files/verified.bin")
        let first = bytes.prefix(1 << 20)
        let rest = Data(bytes.suffix(from: 1 << 20))
        let kept = try sandbox.append(resource, first, complete: false)
        #expect(kept.status == 204)
        let digest = "Content-Digest: " + (try field(of: rest, in: sandbox))
        let sender = try sandbox.startAppend(
            resource,
            offset: first.count,
            length: rest.count,
            sent: rest.prefix(1 << 20),
            fields: [digest]
        )
        let data = sandbox.directory.appending(path: "spool/uploads").path()
        try eventually("more than the first part is written") {
            try Self.bytes(below: data) > first.count
        }
        try sandbox.crash()
        sender.cut()
        #expect(try sandbox.offset(of: resource) == first.count)
        let wrong = try sandbox.append(
            resource,
            offset: first.count,
            Data(rest.reversed()),
            fields: [digest]
        )
        #expect(wrong.status == 400)
        #expect(wrong["upload-complete"] == "?0" && wrong["upload-offset"] == "\(first.count)")
        let right = try sandbox.append(
            resource,
            offset: first.count,
            rest,
            fields: [digest, "Repr-Digest: " + (try field(of: bytes, in: sandbox))]
        )
        #expect(right.status == 201)
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [bytes])
    }

    @Test("PHP never receives an upload whose digest does not match")
    func contradicted() throws {
        let upstream = try RealUpstream()
        let sandbox = try Sandbox(upstream: upstream.url)
        let (_, bytes) = try sandbox.randomFile(1 << 20)
        let other = "Repr-Digest: " + (try field(of: Data("other".utf8), in: sandbox))
        let resource = try sandbox.create("/files/index.php", [other])
        let response = try sandbox.append(resource, bytes)
        #expect(response.status == 400)
        #expect(response["upload-complete"] == "?1")
        #expect(response.text.contains("digest-mismatched-values"))
        #expect(try sandbox.ask("HEAD", resource).status == 404)
        let plain = try sandbox.ask("PUT", "/files/index.php", [other], content: bytes)
        #expect(plain.status == 400)
        #expect(try upstream.phpCalls() == 0)
        let wanting = try sandbox.create("/files/index.php", ["Want-Repr-Digest: sha-256=1"])
        let told = try sandbox.append(wanting, bytes)
        #expect(told.status == 202)
        #expect(told["repr-digest"] == (try field(of: bytes, in: sandbox)))
    }

    private static func bytes(below path: String) throws -> Int {
        let files = FileManager.default.enumerator(atPath: path)?.allObjects as? [String] ?? []
        return try files.reduce(0) { sum, file in
            let attributes = try FileManager.default.attributesOfItem(atPath: "\(path)/\(file)")
            let isFile = attributes[.type] as? FileAttributeType == .typeRegular
            return sum + (isFile ? attributes[.size] as? Int ?? 0 : 0)
        }
    }
}
