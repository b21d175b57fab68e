// An upload's owner, route and lifetime.

import HTTPTypes
import Logging
@testable import SpoolgateExchange
import SpoolgateRequests
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import Testing

@Suite struct AccessTests {
    private func context(_ owner: String?, route: String? = nil) -> ExchangeContext {
        ExchangeContext(
            route: route,
            owner: owner.map { ExactText($0) },
            interimStatuses: [104]
        )
    }

    @Test(
        "an upload is 404 to everyone but its owner, for every request",
        arguments: ["bob", nil]
    )
    func owner(stranger: String?) throws {
        let test = try GatewayUnderTest()
        let location = test.createPartial("hello", context: context("alice"))
        let other = context(stranger)
        let requests: [ScriptedExchange] = [
            .retrieval(location, context: other),
            .append(location, at: 5, ["x"], context: other),
            .cancellation(location, context: other),
        ]
        for request in requests { #expect(test.serve(request).status == 404) }
        #expect(test.serve(.retrieval(location, context: context("alice"))).offset == 5)
        #expect(try test.drops().isEmpty)
    }

    @Test("another client's request does not disturb an active writer")
    func strangerBesideWriter() throws {
        let test = try GatewayUnderTest()
        let location = test.createPartial("hello", context: context("alice"))
        let writer = ScriptedExchange.append(
            location,
            at: 5,
            [" w", .stuck],
            length: .known(6),
            context: context("alice")
        )
        let writing = try test.start(writer)
        #expect(writer.waitUntilStuck())
        for other in [context("bob"), context(nil)] {
            #expect(test.serve(.retrieval(location, context: other)).status == 404)
            #expect(test.serve(.cancellation(location, context: other)).status == 404)
        }
        #expect(!writing.isEnded)
        // For its owner the writer ends, and its content counts.
        #expect(test.serve(.retrieval(location, context: context("alice"))).offset == 7)
        #expect(try writing.finish().isAborted)
    }

    @Test("an upload belongs to the route that received it")
    func route() throws {
        let test = try GatewayUnderTest { settings, route in
            settings.routes["other"] = route
        }
        let location = test.createPartial()
        #expect(
            test.serve(.retrieval(location, context: context(nil, route: "other"))).status == 404
        )
        #expect(test.serve(.retrieval(location)).status == 204)
    }

    @Test("if anonymous uploads are refused, none is read, and other requests pass")
    func anonymousRefused() throws {
        let test = try GatewayUnderTest { _, route in route.anonymous = .refuse }
        for interims: [Int] in [[], [104]] {
            let noListener = ExchangeContext(interimStatuses: interims)
            let requests: [ScriptedExchange] = [
                .creation(["a"], context: noListener),
                .creation(["a"], complete: false, context: noListener),
                ScriptedExchange(.post, "/p", [:], ["a"], context: noListener),
                ScriptedExchange(.put, "/p", [:], ["a"], context: noListener),
                ScriptedExchange(.patch, "/p", [:], ["a"], context: noListener),
            ]
            for request in requests {
                let record = test.serve(request)
                #expect(record.events == [.head(403)])
                #expect(record[.contentType] == "application/problem+json")
                #expect(record.text.contains("authenticated clients"))
            }
        }
        #expect(test.log.level(of: "anonymous upload refused") == .info)
        #expect(test.log.messages.count { $0 == "anonymous upload refused" } == 10)
        #expect(try test.summaries().isEmpty)
        #expect(try test.drops().isEmpty)
        #expect(test.serve(.creation(["a"], context: context("a"))).status == 201)
        let plain = ScriptedExchange(.post, "/p", [:], ["b"], context: context("a"))
        #expect(test.serve(plain).status == 201)
        // Not an upload: the upstream responds, here a directory.
        #expect(test.serve(ScriptedExchange(.get, "/p", [:], [])).status == 405)
    }

    @Test(
        "anonymous uploads are accepted if the settings say so or say nothing",
        arguments: [true, false]
    )
    func anonymousAllowed(isSaid: Bool) throws {
        let test = try GatewayUnderTest { _, route in route.anonymous = isSaid ? .allow : nil }
        #expect(test.serve(.creation(["a"])).status == 201)
        #expect(test.serve(ScriptedExchange(.post, "/p", [:], ["b"])).status == 201)
    }

    @Test("a route that is missing from the settings is a configuration error: 500, and a log line")
    func unknownRoute() throws {
        let test = try GatewayUnderTest()
        let record = test.serve(.creation(["a"], context: context(nil, route: "nowhere")))
        #expect(record.status == 500)
        #expect(record.events == [.head(500)])
        #expect(record.text.contains("nowhere"))
        #expect(record[.uploadComplete] == nil)
        #expect(test.log.level(of: "unknown route") == .error)
    }

    @Test("an upload that was idle for max-age is removed with its content")
    func expiry() throws {
        let test = try GatewayUnderTest { _, route in route.limits.maxAge = 3600 }
        let location = test.createPartial()
        try test.age(location, by: 3500)
        let told = test.serve(.retrieval(location))
        #expect(told.status == 204)
        // RFC 9651 §3.2: a Dictionary member. It is the remaining time, not the route's maximum.
        let limits = try #require(told[.uploadLimit])
        let age = try #require(limits.firstRange(of: "max-age="))
        let left = try #require(Int(limits[age.upperBound...].prefix { $0.isNumber }))
        #expect(left > 0 && left <= 100)
        try test.age(location, by: 3601)
        #expect(test.serve(.append(location, at: 5, ["x"])).status == 404)
        #expect(try test.summaries().isEmpty)
        #expect(test.log.messages.contains("upload expired"))
    }

    @Test("a stored result does not expire while its client requests it")
    func verdictsStay() throws {
        let test = try GatewayUnderTest { _, route in route.limits.maxAge = 3600 }
        let record = test.serve(.creation())
        let location = try #require(record.location)
        try test.age(location, by: 7200)
        let told = test.serve(.retrieval(location))
        #expect(told.status == 204)
        #expect(told[.uploadComplete] == "?1")
        #expect(try #require(told[.uploadLimit]).contains("max-age=0"))
    }

    @Test("an upload can be canceled while it is received")
    func cancellationWhileReceiving() throws {
        let test = try GatewayUnderTest()
        let writer = ScriptedExchange.creation(["hello", .stuck], length: .known(9))
        let writing = try test.start(writer)
        #expect(writer.waitUntilStuck())
        let location = try #require(writer.record.location)
        #expect(test.serve(.cancellation(location)).status == 204)
        #expect(try writing.finish().isAborted)
        #expect(try test.summaries().isEmpty)
    }

    @Test("the newest request wins: a stuck append releases and the next continues at its offset")
    func preemption() throws {
        let test = try GatewayUnderTest()
        let location = test.createPartial("hello")
        let old = ScriptedExchange.append(location, at: 5, [" you", .stuck], length: .unknown)
        let stuck = try test.start(old)
        #expect(old.waitUntilStuck())
        let told = test.serve(.retrieval(location))
        #expect(told.status == 204)
        #expect(told.offset == 9)
        let ended = try stuck.finish()
        #expect(ended.isAborted && ended.head == nil)

        let second = ScriptedExchange.append(location, at: 9, [" all", .stuck], length: .unknown)
        let stuckAgain = try test.start(second)
        #expect(second.waitUntilStuck())
        let newest = test.serve(.append(location, at: 13, ["!"]))
        #expect(newest.status == 201)
        #expect(try stuckAgain.finish().isAborted)
        #expect(try test.drops() == [Array("hello you all!".utf8)])
    }
}
