// Clients' digests are verified before an upload takes effect; requested ones are sent.

import HTTPTypes
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateDelivery
@testable import SpoolgateExchange
@testable import SpoolgateRequests
@testable import SpoolgateSettings

// Of `hello`, computed by openssl dgst.
private let sha256 = "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:"
private let sha512 =
    "sha-512=:m3HSJL1i83hdltRq0+o9czGb+8KJDKra4t/3JRlnPKcjI8PZm6XBHXx6zG4UuMXaDE"
    + "ZjR1wuXDre9G9zvN7AQw==:"
private let wrong = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"

private func isMismatch(_ record: ScriptedExchange.Record) -> Bool {
    record.status == 400 && record.text.contains("http-problem-types#digest-mismatched-values")
}

@Suite struct DigestTests {
    @Test("a correct Repr-Digest of the creation, or of the completing request, changes nothing")
    func right() throws {
        let test = try GatewayUnderTest()
        let fields: HTTPFields = [.reprDigest: "\(sha256), \(sha512), xxh64=:AAAA:"]
        #expect(test.serve(.creation(fields: fields)).status == 201)
        let location = try #require(
            test.serve(.creation(["hel"], complete: false, fields: fields)).location
        )
        let record = test.serve(.append(location, at: 3, ["lo"], fields: fields))
        #expect(record.status == 201)
        #expect(record[.reprDigest] == nil)
        #expect(try test.drops().count == 2)
    }

    @Test(
        "a wrong Repr-Digest, from either request, ends the upload undelivered",
        arguments: [0, 1, 2]
    )
    func contradicted(whose: Int) throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target)
        let contradicting: HTTPFields = [.reprDigest: "\(sha512), \(wrong)"]
        let location: String
        let record: ScriptedExchange.Record
        if whose == 0 {
            record = test.serve(.creation(fields: contradicting))
            location = try #require(record.location)
        } else {
            let creation = test.serve(
                .creation(["hel"], complete: false, fields: whose == 1 ? contradicting : [:])
            )
            location = try #require(creation.location)
            #expect(creation.status == 201)
            record = test.serve(
                .append(location, at: 3, ["lo"], fields: whose == 2 ? contradicting : [:])
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
        let creation = test.serve(.creation(fields: fields))
        #expect(creation.status == 400)
        #expect(creation[.uploadComplete] == "?0")
        #expect(creation.text.contains("digest-invalid-values"))
        #expect(!creation.events.contains(.read))
        #expect(try test.summaries().isEmpty)
        let location = test.createPartial()
        let append = test.serve(.append(location, at: 5, ["x"], fields: fields))
        #expect(append.status == 400 && !append.events.contains(.read))
        #expect(test.serve(.retrieval(location)).offset == 5)
        let plain = test.serve(ScriptedExchange(.put, "/x", fields, ["hello"]))
        #expect(plain.status == 400 && !plain.events.contains(.read))
        #expect(plain[.uploadComplete] == nil)
        #expect(try test.drops().isEmpty)
    }

    @Test(
        "a client that wants a digest receives it with the final response, and again if that is lost"
    )
    func wanted() throws {
        let test = try GatewayUnderTest()
        let fields: HTTPFields = [.wantReprDigest: "sha-512=9, sha-256=3"]
        let creation = test.serve(.creation(fields: fields))
        #expect(creation[.reprDigest] == sha512)
        let location = try #require(creation.location)
        let again = test.serve(.append(location, at: 5))
        #expect(again.status == 201)
        #expect(again[.reprDigest] == sha512)
    }

    @Test("the upstream receives the digest that its route names, in addition to the client's own")
    func told() throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target) { $1.digest = .sha512 }
        func heard(_ fields: HTTPFields) -> [String]? {
            let record = test.serve(.creation(fields: fields))
            #expect(record.status == 200)
            let resumable = origin.requests.last?.values("Repr-Digest")
            test.serve(ScriptedExchange(.put, "/x", fields, ["hello"]))
            #expect(origin.requests.last?.values("Repr-Digest") == resumable)
            return resumable
        }
        #expect(heard([:]) == [sha512])
        #expect(heard([.reprDigest: sha256]) == ["\(sha256), \(sha512)"])
        #expect(heard([.reprDigest: "a=1, \(sha512)"]) == ["a=1, \(sha512)"])
    }

    @Test(
        "an ordinary upload is verified before the upstream receives it",
        arguments: [5, 300_000]
    )
    func plain(size: Int) throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target)
        let content = size == 5 ? Array("hello".utf8) : [UInt8](repeating: 7, count: size)
        let right =
            size == 5 ? sha256 : "sha-256=:CPFmR23hg/ehsodNVE03kSqvjRm5IBPhqv4jO6IxAko=:"
        func put(_ fields: HTTPFields) -> ScriptedExchange.Record {
            test.serve(ScriptedExchange(.put, "/x", fields, [.bytes(content)]))
        }
        for name in [HTTPField.Name.contentDigest, .reprDigest] {
            let refused = put([name: wrong])
            #expect(isMismatch(refused))
            #expect(refused[.uploadComplete] == nil)
        }
        #expect(origin.requests.isEmpty)
        let taken = put([.contentDigest: right, .reprDigest: right, .wantReprDigest: "sha-256=1"])
        #expect(taken.status == 200 && taken[.reprDigest] == nil)
        #expect(origin.requests.last?.values("Content-Digest") == [right])
        // A digest of the whole representation does not apply to a part.
        let part = put([.reprDigest: wrong, .contentRange: "bytes 0-4/9"])
        #expect(part.status == 200)
    }

    @Test("all digests are computed in one pass, which yields between its parts")
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

/// Content-Digest of one message: all of its content counts or none, and no offset includes it before it is verified.
@Suite struct ContentDigestTests {
    @Test("an append with a wrong digest leaves the upload unchanged; the correct one continues")
    func append() throws {
        let test = try GatewayUnderTest()
        let location = test.createPartial("one ")
        func append(_ text: String, _ digest: String) -> ScriptedExchange.Record {
            test.serve(
                .append(
                    location,
                    at: 4,
                    text.map { .text(String($0)) },
                    fields: [.contentDigest: digest]
                )
            )
        }
        let refused = append("hallo", sha256)
        #expect(isMismatch(refused) && refused[.uploadComplete] == "?0")
        #expect(refused.offset == 4)
        #expect(test.serve(.retrieval(location)).offset == 4)
        #expect(try test.drops().isEmpty)
        let empty = test.serve(
            .append(location, at: 4, complete: false, fields: [.contentDigest: sha256])
        )
        #expect(isMismatch(empty) && empty[.uploadComplete] == "?0")
        #expect(append("hello", sha256).status == 201)
        #expect(try test.drops() == [Array("one hello".utf8)])
    }

    @Test("a creation with a wrong digest keeps nothing", arguments: [true, false])
    func creation(isLocationReported: Bool) throws {
        let test = try GatewayUnderTest()
        let context = ExchangeContext(interimStatuses: isLocationReported ? [104] : [])
        let refused = test.serve(
            .creation(["hallo"], fields: [.contentDigest: sha256], context: context)
        )
        #expect(isMismatch(refused) && refused[.uploadComplete] == "?0")
        #expect(try test.drops().isEmpty)
        guard isLocationReported else {
            #expect(try test.summaries().isEmpty)
            return
        }
        #expect(refused.offset == 0)
        let location = try #require(refused.location)
        #expect(test.serve(.retrieval(location)).offset == 0)
        let whole = test.serve(
            .append(location, at: 0, ["hello"], fields: [.contentDigest: sha256])
        )
        #expect(whole.status == 201)
        #expect(try test.drops() == [Array("hello".utf8)])
    }

    @Test(
        "content that is cut, too long or taken over does not count",
        arguments: ["cut", "excess", "released"]
    )
    func early(how: String) throws {
        let test = try GatewayUnderTest { $1.limits.maxAppendSize = 9 }
        let location = test.createPartial("one ")
        let steps: [ScriptedExchange.Step] =
            switch how {
            case "cut": ["hel", "lo", .fails(.truncated)]
            case "excess": ["hello, and more"]
            default: ["hello", .stuck]
            }
        let append = ScriptedExchange.append(
            location,
            at: 4,
            steps,
            complete: false,
            length: .unknown,
            fields: [.contentDigest: sha256]
        )
        if how == "released" {
            let running = try test.start(append)
            #expect(append.waitUntilStuck())
            #expect(test.serve(.retrieval(location)).offset == 4)
            #expect(try running.finish().isAborted)
        } else {
            let record = test.serve(append)
            #expect(how == "cut" ? record.isAborted : record.status == 413)
            if how == "excess" { #expect(record.offset == 4) }
        }
        #expect(test.serve(.retrieval(location)).offset == 4)
        let next = test.serve(.append(location, at: 4, ["two"]))
        #expect(next.status == 201)
        #expect(try test.drops() == [Array("one two".utf8)])
    }

    @Test(
        "no progress is reported for content with a digest; without a digest it is"
    )
    func progress() throws {
        let test = try GatewayUnderTest { settings, _ in
            settings.interim.progressInterval = .zero
            settings.interim.progressSize = 0
        }
        let steps = "hello".map { ScriptedExchange.Step.text(String($0)) }
        func progress(_ fields: HTTPFields) -> Int {
            let record = test.serve(.creation(steps, complete: false, fields: fields))
            #expect(record.offset == 5)
            return record.interims.count { $0.fields.contains(.uploadOffset) }
        }
        #expect(progress([.contentDigest: sha256]) == 0)
        #expect(progress([:]) > 0)
        #expect(progress([.contentDigest: "xxh64=:AAAA:"]) > 0)
    }

    @Test("a digest with the empty append to a complete upload has no effect")
    func wholeAlready() throws {
        let test = try GatewayUnderTest()
        let location = try #require(test.serve(.creation()).location)
        for length in [ContentLength.known(0), .unknown] {
            let again = test.serve(
                .append(location, at: 5, [], length: length, fields: [.contentDigest: wrong])
            )
            #expect(again.status == 201)
        }
        #expect(try test.drops().count == 1)
    }

    @Test(
        "with the reply `accepted`, a contradicted digest gets its refusal instead of 202",
        arguments: [true, false]
    )
    func accepted(isPlain: Bool) throws {
        let test = try GatewayUnderTest { $1.reply = .accepted }
        func serve(_ digest: String) -> ScriptedExchange.Record {
            test.serve(
                isPlain
                    ? ScriptedExchange(.put, "/x", [.contentDigest: digest], ["hello"])
                    : .creation(fields: [.reprDigest: digest])
            )
        }
        let refused = serve(wrong)
        #expect(refused.status == 400)
        #expect(refused[.uploadComplete] == (isPlain ? nil : "?1"))
        #expect(try test.summaries().isEmpty)
        #expect(serve(sha256).status == 202)
    }
}
