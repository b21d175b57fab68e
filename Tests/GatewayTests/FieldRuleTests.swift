// The effect of field rules on requests to the upstream, records and the log.

import Foundation
import HTTPTypes
@testable import SpoolgateDelivery
import SpoolgatePosix
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateExchange
@testable import SpoolgateRequests
@testable import SpoolgateSettings

@Suite struct FieldRuleTests {
    private func name(_ text: String) throws -> HTTPField.Name {
        try #require(HTTPField.Name(text))
    }

    private let gateway = GatewayName(token: "here")

    /// The forwarding fields for a client's address and the requested host.
    private func forwarded(
        _ style: FieldPolicy.Forwarding,
        address: String?,
        host: String = "example.org",
        before: HTTPFields = [:]
    ) -> [String] {
        var fields = before
        fields.addForwarding(style, address: address, scheme: "https", host: host, by: gateway)
        return fields.map { "\($0.name.canonicalName): \($0.value)" }
    }

    @Test("the client's address is in the fields of the configured style")
    func styles() throws {
        let via = "via: 1.1 spoolgate-here"
        let ours = [
            "x-forwarded-for: 192.0.2.7", "x-forwarded-proto: https",
            "x-forwarded-host: example.org",
        ]
        let standard = "forwarded: for=192.0.2.7;proto=https;host=example.org"
        #expect(forwarded(.xForwarded, address: "192.0.2.7") == ours + [via])
        #expect(forwarded(.forwarded, address: "192.0.2.7") == [standard, via])
        #expect(forwarded(.both, address: "192.0.2.7") == ours + [standard, via])
        #expect(forwarded(.none, address: "192.0.2.7") == [via])
        let before: HTTPFields = [
            .xForwardedFor: "198.51.100.1", .xForwardedHost: "spoofed", .forwarded: "for=_a",
        ]
        #expect(
            forwarded(.both, address: "192.0.2.7", before: before) == [
                "x-forwarded-for: 198.51.100.1, 192.0.2.7", "x-forwarded-host: example.org",
                "forwarded: for=_a, for=192.0.2.7;proto=https;host=example.org",
                "x-forwarded-proto: https", via,
            ]
        )
        #expect(forwarded(.none, address: nil, before: before).count == 4)
    }

    @Test("a client's own forwarding fields reach the upstream only if the route trusts them")
    func claims() throws {
        let claims = [
            "X-Real-IP", "Forwarded", "X-Forwarded-For", "X-Forwarded-Port", "X-Forwarded-Proto",
            "X-Forwarded-Host", "X-Forwarded-Prefix", "X-Original-URL", "X-Rewrite-URL",
            "Client-IP",
            "True-Client-IP", "X-Forwarded", "CF-Connecting-IP", "X-Remote-User", "Front-End-Https",
        ]
        for trusts in [false, true] {
            let origin = try LoopbackOrigin(status: "201 Created")
            let test = try GatewayUnderTest(origin.target) { _, route in
                route.fields.forwarding = trusts ? .trust : .none
            }
            var fields: HTTPFields = [.userAgent: "told", try name("x-original-filename"): "a.txt"]
            for claim in claims { fields[try name(claim)] = "spoofed" }
            test.serve(.creation(["a"], fields: fields))
            test.serve(ScriptedExchange(.put, "/a", fields, ["x"]))
            test.serve(ScriptedExchange(.get, "/a", fields, []))
            #expect(origin.requests.count == 3)
            for request in origin.requests {
                let spoofed = request.fieldLines.filter { $0.hasSuffix("spoofed") }.count
                #expect(spoofed == (trusts ? claims.count : 0), "\(request.fieldLines)")
                #expect(request.values("user-agent") == ["told"])
                #expect(request.values("x-original-filename") == ["a.txt"])
            }
        }
    }

    @Test(
        "the host is the origin's; without an origin it is the client's, with an invalid one it is omitted"
    )
    func host() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let test = try GatewayUnderTest(origin.target)
        let contexts = [
            (ExchangeContext(origin: "https://a.example:8443"), "a.example:8443"),
            (ExchangeContext.empty, "client.example"),
            (ExchangeContext(badOrigin: "x", faults: [.badOrigin]), "127.0.0.1:\(origin.port)"),
        ]
        for (context, expected) in contexts {
            let fields: HTTPFields = [.host: "client.example"]
            test.serve(.creation(["a"], fields: fields, context: context))
            test.serve(ScriptedExchange(.get, "/a", fields, [], context: context))
            for request in origin.requests.suffix(2) {
                #expect(request.values("host") == [expected])
                let told = expected.hasPrefix("127") ? [] : [expected]
                #expect(request.values("x-forwarded-host") == told)
            }
        }
    }

    @Test(
        "addresses and hosts are quoted according to RFC 7239",
        arguments: [
            ("2001:db8::1", "example.org", "for=\"[2001:db8::1]\";proto=https;host=example.org"),
            ("unix:", "example.org", "for=unknown;proto=https;host=example.org"),
            ("192.0.2.7", "a:8443", "for=192.0.2.7;proto=https;host=\"a:8443\""),
            ("192.0.2.7", "a\"\\b", "for=192.0.2.7;proto=https;host=\"a\\\"\\\\b\""),
            ("192.0.2.7", "", "for=192.0.2.7;proto=https"),
            (nil, "a", "proto=https;host=a"),
        ] as [(String?, String, String)]
    )
    func quoting(address: String?, host: String, value: String) {
        let lines = forwarded(.forwarded, address: address, host: host)
        #expect(lines.first == "forwarded: \(value)")
    }

    @Test("the creation's client and host are forwarded, and the operator's own fields win")
    func creation() throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target) { _, route in
            route.fields.forwarding = .both
            route.fields.forward = [.accept]
            route.fields.strip = [.userAgent]
            route.fields.set = [HTTPField(name: .accept, value: "text/plain")]
        }
        func context(_ address: String) -> ExchangeContext {
            ExchangeContext(interimStatuses: [104], remoteAddress: address, scheme: "https")
        }
        let location = try #require(
            test.serve(
                .creation(
                    ["hel"],
                    complete: false,
                    fields: [.host: "first.example", .accept: "a/b", .userAgent: "x", .range: "y"],
                    context: context("2001:db8::1")
                )
            ).location
        )
        let record = test.serve(
            .append(
                location,
                at: 3,
                ["lo"],
                fields: [.host: "second.example"],
                context: context("192.0.2.7")
            )
        )
        #expect(record.status == 200)
        let request = try #require(origin.requests.first)
        #expect(request.values("X-Forwarded-For") == ["2001:db8::1"])
        #expect(request.values("X-Forwarded-Host") == ["first.example"])
        #expect(
            request.values("Forwarded")
                == ["for=\"[2001:db8::1]\";proto=https;host=first.example"]
        )
        #expect(request.values("Accept") == ["text/plain"])
        #expect(request.values("User-Agent") == [] && request.values("Range") == [])
        // For other requests only the stripped fields are withheld.
        test.serve(
            ScriptedExchange(.get, "/x", [.userAgent: "x", .range: "bytes=0-1", .accept: "a/b"])
        )
        let passed = try #require(origin.requests.last)
        #expect(passed.values("Range") == ["bytes=0-1"])
        #expect(passed.values("Accept") == ["text/plain"])
        #expect(passed.values("User-Agent") == [])
    }

    @Test(
        "credentials are forwarded as the route says, and stored only if they come from the client",
        arguments: FieldPolicy.Credentials.allCases,
        [false, true]
    )
    func credentials(_ whose: FieldPolicy.Credentials, isInOne: Bool) throws {
        let origin = try LoopbackOrigin()
        let key = try name("X-Api-Key")
        let test = try GatewayUnderTest(origin.target) { _, route in
            route.fields.credentials = whose
            route.fields.credentialFields.append(key)
        }
        let first: HTTPFields = [.authorization: "Bearer first", .cookie: "c=first", key: "kfirst"]
        let second: HTTPFields = [.authorization: "Bearer second"]
        var onDisk = false
        if isInOne {
            let looked = Monitor(false)
            let root = test.root
            let record = test.serve(
                .creation(
                    [
                        "hel",
                        .happens { looked.update { $0 = Self.isInFiles("first", below: root) } },
                        "lo",
                    ],
                    fields: first
                )
            )
            #expect(record.status == 200)
            onDisk = looked.update { $0 }
        } else {
            let location = try #require(
                test.serve(.creation(["hel"], complete: false, fields: first)).location
            )
            onDisk = Self.isInFiles("first", below: test.root)
            let record = test.serve(.append(location, at: 3, ["lo"], fields: second))
            #expect(record.status == 200)
            #expect(!Self.isInFiles("second", below: test.root))
        }
        #expect(onDisk == (whose == .creation))
        let request = try #require(origin.requests.first)
        let sent = ["Authorization", "Cookie", "X-Api-Key"].flatMap { request.values($0) }
        switch (whose, isInOne) {
        case (.creation, _), (.completing, true):
            #expect(sent == ["Bearer first", "c=first", "kfirst"])
        case (.completing, false): #expect(sent == ["Bearer second"])
        case (.none, _): #expect(sent == [])
        }
        #expect(!test.log.messages.contains { $0.contains("first") || $0.contains("second") })
    }

    private static func isInFiles(_ text: String, below root: String) -> Bool {
        let files = FileManager.default.enumerator(atPath: root)?.allObjects as? [String] ?? []
        return files.contains { file in
            let content = FileManager.default.contents(atPath: "\(root)/\(file)") ?? Data()
            return content.range(of: Data(text.utf8)) != nil
        }
    }
}
