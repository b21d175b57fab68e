// Content-Digest of one message of an upload: all of its content counts, or none, and nothing of it is
// told before it is verified.

import Foundation
import HTTPTypes
import Posix
import Spool
import TestSupport
import Testing
import UploadProtocol

@testable import Exchange
@testable import Gateway
@testable import Settings

@Suite struct ContentDigestTests {
    /// Of `hello`.
    private static let right = "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:"
    private static let wrong = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"

    private func isMismatch(_ record: ScriptedExchange.Record) -> Bool {
        record.status == 400 && record[.uploadComplete] == "?0"
            && record.text.contains("http-problem-types#digest-mismatched-values")
    }

    @Test("an append whose digest is wrong leaves the upload as it was; the right one goes on")
    func append() throws {
        let test = try GatewayUnderTest()
        let location = test.createPartial("one ")
        func append(_ text: String, _ digest: String) -> ScriptedExchange.Record {
            test.serve(
                .append(
                    location,
                    at: 4,
                    text.map { .text(String($0)) },
                    complete: true,
                    fields: [.contentDigest: digest]
                )
            )
        }
        let refused = append("hallo", Self.right)
        #expect(isMismatch(refused))
        #expect(refused.offset == 4)
        #expect(test.serve(.retrieval(location)).offset == 4)
        #expect(try test.drops().isEmpty)
        let empty = test.serve(
            .append(location, at: 4, complete: false, fields: [.contentDigest: Self.right])
        )
        #expect(isMismatch(empty))
        #expect(append("hello", Self.right).status == 201)
        #expect(try test.drops() == [Array("one hello".utf8)])
    }

    @Test("a creation whose digest is wrong keeps nothing", arguments: [true, false])
    func creation(isLocationTold: Bool) throws {
        let test = try GatewayUnderTest()
        let context = ExchangeContext(interimStatuses: isLocationTold ? [104] : [])
        let refused = test.serve(
            .creation(
                [.text("hallo")],
                complete: true,
                fields: [.contentDigest: Self.right],
                context: context
            )
        )
        #expect(isMismatch(refused))
        #expect(try test.drops().isEmpty)
        guard isLocationTold else {
            #expect(try test.summaries().isEmpty)
            return
        }
        #expect(refused.offset == 0)
        let location = try #require(refused.location)
        #expect(test.serve(.retrieval(location)).offset == 0)
        let whole = test.serve(
            .append(
                location,
                at: 0,
                [.text("hello")],
                complete: true,
                fields: [.contentDigest: Self.right]
            )
        )
        #expect(whole.status == 201)
        #expect(try test.drops() == [Array("hello".utf8)])
    }

    @Test(
        "content that is cut, goes too far or is taken over counts for nothing",
        arguments: ["cut", "excess", "released"]
    )
    func early(how: String) throws {
        let test = try GatewayUnderTest { $1.limits.maxAppendSize = 9 }
        let location = test.createPartial("one ")
        let steps: [ScriptedExchange.Step] =
            switch how {
            case "cut": [.text("hel"), .text("lo"), .fails(.truncated)]
            case "excess": [.text("hello, and more")]
            default: [.text("hello"), .stuck]
            }
        let append = ScriptedExchange.append(
            location,
            at: 4,
            steps,
            complete: false,
            length: .unknown,
            fields: [.contentDigest: Self.right]
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
        let next = test.serve(.append(location, at: 4, [.text("two")], complete: true))
        #expect(next.status == 201)
        #expect(try test.drops() == [Array("one two".utf8)])
    }

    @Test(
        "no progress is told of content that is not verified, and again of content without a digest"
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
        #expect(progress([.contentDigest: Self.right]) == 0)
        #expect(progress([:]) > 0)
        #expect(progress([.contentDigest: "xxh64=:AAAA:"]) > 0)
    }

    @Test("a digest with the empty append to an upload that is whole harms nothing")
    func wholeAlready() throws {
        let test = try GatewayUnderTest()
        let location = try #require(
            test.serve(.creation([.text("hello")], complete: true)).location
        )
        for length in [ContentLength.known(0), .unknown] {
            let again = test.serve(
                .append(
                    location,
                    at: 5,
                    [],
                    complete: true,
                    length: length,
                    fields: [.contentDigest: Self.wrong]
                )
            )
            #expect(again.status == 201)
        }
        #expect(try test.drops().count == 1)
    }

    @Test(
        "with the reply accepted, what is contradicted hears that instead of 202",
        arguments: [true, false]
    )
    func accepted(isPlain: Bool) throws {
        let test = try GatewayUnderTest { $1.reply = .accepted }
        func serve(_ digest: String) -> ScriptedExchange.Record {
            test.serve(
                isPlain
                    ? ScriptedExchange(.put, "/x", [.contentDigest: digest], [.text("hello")])
                    : .creation([.text("hello")], complete: true, fields: [.reprDigest: digest])
            )
        }
        let refused = serve(Self.wrong)
        #expect(refused.status == 400)
        #expect(refused[.uploadComplete] == (isPlain ? nil : "?1"))
        #expect(try test.summaries().isEmpty)
        #expect(serve(Self.right).status == 202)
    }
}
