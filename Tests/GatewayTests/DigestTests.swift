// Digests: what clients say is verified before anybody hears of the upload, and what they or the
// upstream want to know is told.

import Foundation
import HTTPTypes
import Posix
import TestSupport
import Testing
import UploadProtocol
import Upstream

@testable import Delivery
@testable import Gateway
@testable import Settings

@Suite struct DigestTests {
    // Of `hello`, by openssl dgst.
    private static let sha256 = "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:"
    private static let sha512 =
        "sha-512=:m3HSJL1i83hdltRq0+o9czGb+8KJDKra4t/3JRlnPKcjI8PZm6XBHXx6zG4UuMXaDE"
        + "ZjR1wuXDre9G9zvN7AQw==:"
    private static let wrong = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"

    private func isMismatch(_ record: ScriptedExchange.Record) -> Bool {
        record.status == 400
            && record.text.contains("http-problem-types#digest-mismatched-values")
    }

    @Test("a right Repr-Digest of the creation, or of the completing request, changes nothing")
    func right() throws {
        let test = try GatewayUnderTest()
        let fields: HTTPFields = [.reprDigest: "\(Self.sha256), \(Self.sha512), xxh64=:AAAA:"]
        #expect(
            test.serve(.creation([.text("hello")], complete: true, fields: fields)).status == 201
        )
        let location = try #require(
            test.serve(.creation([.text("hel")], complete: false, fields: fields)).location
        )
        let record = test.serve(
            .append(location, at: 3, [.text("lo")], complete: true, fields: fields)
        )
        #expect(record.status == 201)
        #expect(record[.reprDigest] == nil)
        #expect(try test.drops().count == 2)
    }

    @Test(
        "a wrong Repr-Digest, whoever sent it, ends the upload undelivered",
        arguments: [0, 1, 2]
    )
    func wrong(whose: Int) throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(.http(base: origin.base))
        let wrong: HTTPFields = [.reprDigest: "\(Self.sha512), \(Self.wrong)"]
        let location: String
        let record: ScriptedExchange.Record
        if whose == 0 {
            record = test.serve(.creation([.text("hello")], complete: true, fields: wrong))
            location = try #require(record.location)
        } else {
            let creation = test.serve(
                .creation([.text("hel")], complete: false, fields: whose == 1 ? wrong : [:])
            )
            location = try #require(creation.location)
            #expect(creation.status == 201)
            record = test.serve(
                .append(
                    location,
                    at: 3,
                    [.text("lo")],
                    complete: true,
                    fields: whose == 2 ? wrong : [:]
                )
            )
        }
        #expect(isMismatch(record))
        #expect(record[.uploadComplete] == "?1")
        #expect(origin.requests.isEmpty)
        #expect(test.serve(.retrieval(location)).status == 404)
        #expect(try test.summaries().isEmpty)
    }

    @Test(
        "a digest that cannot be verified is refused before any content is read",
        arguments: [HTTPField.Name.reprDigest, .contentDigest]
    )
    func invalid(name: HTTPField.Name) throws {
        let test = try GatewayUnderTest()
        let fields: HTTPFields = [name: "sha-256=:AAAA:"]
        let creation = test.serve(.creation([.text("hello")], complete: true, fields: fields))
        #expect(creation.status == 400)
        #expect(creation[.uploadComplete] == "?0")
        #expect(creation.text.contains("digest-invalid-values"))
        #expect(!creation.events.contains(.read))
        #expect(try test.summaries().isEmpty)
        let location = test.createPartial()
        let append = test.serve(
            .append(location, at: 5, [.text("x")], complete: true, fields: fields)
        )
        #expect(append.status == 400 && !append.events.contains(.read))
        #expect(test.serve(.retrieval(location)).offset == 5)
        let plain = test.serve(ScriptedExchange(.put, "/x", fields, [.text("hello")]))
        #expect(plain.status == 400 && !plain.events.contains(.read))
        #expect(plain[.uploadComplete] == nil)
        #expect(try test.drops().isEmpty)
    }

    @Test(
        "a client that wants a digest hears it with the final response, and again when it is lost"
    )
    func wanted() throws {
        let test = try GatewayUnderTest()
        let fields: HTTPFields = [.wantReprDigest: "sha-512=9, sha-256=3"]
        let creation = test.serve(.creation([.text("hello")], complete: true, fields: fields))
        #expect(creation[.reprDigest] == Self.sha512)
        let location = try #require(creation.location)
        let again = test.serve(.append(location, at: 5, complete: true))
        #expect(again.status == 201)
        #expect(again[.reprDigest] == Self.sha512)
    }

    @Test("the upstream is told the digest that its route says, beside the client's own")
    func told() throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(.http(base: origin.base)) { $1.digest = .sha512 }
        func heard(_ fields: HTTPFields) -> [String]? {
            let record = test.serve(.creation([.text("hello")], complete: true, fields: fields))
            #expect(record.status == 200)
            let resumable = origin.requests.last?.values("Repr-Digest")
            test.serve(ScriptedExchange(.put, "/x", fields, [.text("hello")]))
            #expect(origin.requests.last?.values("Repr-Digest") == resumable)
            return resumable
        }
        #expect(heard([:]) == [Self.sha512])
        #expect(heard([.reprDigest: Self.sha256]) == ["\(Self.sha256), \(Self.sha512)"])
        #expect(heard([.reprDigest: "a=1, \(Self.sha512)"]) == ["a=1, \(Self.sha512)"])
    }

    @Test(
        "an ordinary upload is verified before the upstream hears of it",
        arguments: [5, 300_000]
    )
    func plain(size: Int) throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(.http(base: origin.base))
        let content = size == 5 ? Array("hello".utf8) : [UInt8](repeating: 7, count: size)
        let right =
            size == 5 ? Self.sha256 : "sha-256=:CPFmR23hg/ehsodNVE03kSqvjRm5IBPhqv4jO6IxAko=:"
        func put(_ fields: HTTPFields) -> ScriptedExchange.Record {
            test.serve(ScriptedExchange(.put, "/x", fields, [.bytes(content)]))
        }
        for name in [HTTPField.Name.contentDigest, .reprDigest] {
            let refused = put([name: Self.wrong])
            #expect(isMismatch(refused))
            #expect(refused[.uploadComplete] == nil)
        }
        #expect(origin.requests.isEmpty)
        let taken = put([.contentDigest: right, .reprDigest: right, .wantReprDigest: "sha-256=1"])
        #expect(taken.status == 200 && taken[.reprDigest] == nil)
        #expect(origin.requests.last?.values("Content-Digest") == [right])
        // What is said of the whole of something cannot be held against a part of it.
        let part = put([.reprDigest: Self.wrong, .contentRange: "bytes 0-4/9"])
        #expect(part.status == 200)
    }

    @Test("all digests come from one pass over the content, between whose parts others get a word")
    func reading() throws {
        let content = [UInt8](repeating: 7, count: 3 << 20 | 5)
        var read = 0
        var words = 0
        let values = DigestReading.values(
            [.sha256, .sha512],
            length: Int64(content.count),
            read: { buffer, position in
                let part = content[Int(position)...].prefix(min(buffer.count, 700_000))
                buffer.copyBytes(from: part)
                read += part.count
                return part.count
            },
            onProgress: { words += 1 }
        )
        let whole = DigestReading([.sha256, .sha512])
        whole.update(content.span.bytes)
        #expect(values == whole.finish())
        #expect(read == content.count)
        #expect(words == 4)
        let short = DigestReading.values([.sha256], length: 9) { _, position in
            position < 4 ? 4 : 0
        }
        #expect(short == nil)
        #expect(DigestReading.values([], length: 9) { _, _ in 0 } == DigestValues())
    }
}
