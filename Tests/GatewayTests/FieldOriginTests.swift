// Who has set a field: every setting and answer that adds one, and every attempt of a client to remove or replace it.

import HTTPTypes
@testable import SpoolgateDelivery
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateExchange
@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

@Suite("the origin of fields")
struct FieldOriginTests {
    enum Sender: CaseIterable {
        case draft3, draft6, draft10, tus, ordinary, streamed

        var version: Int? {
            switch self {
            case .draft3: 3
            case .draft6: 6
            case .draft10: 10
            case .tus, .ordinary, .streamed: nil
            }
        }
    }

    enum Moment: CaseIterable {
        case now, queue, restart
    }

    /// The authorizer, the operator and the gateway set these; the client must change none of them.
    private static let expected: [String: [String]] = [
        "x-user": ["alice"], "x-group": ["a", "b"], "x-role": [], "x-forwarded-user": ["alice"],
        "authorization": ["Bearer inner"], "cookie": [], "content-type": ["text/authorized"],
        "x-meta-owner": ["alice"], "x-meta-full-name": ["alice"], "x-meta-admin": [],
        "x-meta-plan": ["paid"],
        "x-operator": ["op"], "x-forwarded-for": ["192.0.2.7"], "x-forwarded-proto": ["https"],
        "x-forwarded-host": ["up.example"], "host": ["up.example"],
        "forwarded": ["for=192.0.2.7;proto=https;host=up.example"],
        "content-disposition": ["attachment; filename=authorized"],
    ]

    private static let names =
        Array(expected.keys) + [
            "x-request-id", "via", "idempotency-key", "repr-digest", "content-length",
        ]

    private static func fields(_ lines: [(String, String)]) -> HTTPFields {
        HTTPFields(
            lines.compactMap { line in
                HTTPField.Name(line.0).map { HTTPField(name: $0, value: line.1) }
            }
        )
    }

    private static func metadata(_ keys: [String]) -> HTTPFields {
        [
            .uploadMetadata: keys.map { "\($0) \(Base64.encode(Array("mallory".utf8)))" }.joined(
                separator: ","
            )
        ]
    }

    /// The names that a client may send itself.
    private static let forged = names.filter {
        !["host", "content-length", "repr-digest", "via", "content-type"].contains($0)
    }

    static let attacks: [(name: String, fields: HTTPFields)] = [
        ("nothing", [:]),
        ("Connection", fields([("Connection", "close, " + names.joined(separator: ", "))])),
        (
            "Connection in capitals",
            fields([("connection", names.joined(separator: ",").uppercased())])
        ),
        ("many Connections", fields(names.map { ("Connection", " \($0)\t,") })),
        ("metadata", metadata(["Owner", "Admin", "plan", "filename", "filetype"])),
        (
            "metadata with another case, repeated, and _ for -",
            metadata(["OWNER", "owner", "aDMIN", "pLAN", "Full_Name", "full_name"])
        ),
        ("its own", fields(forged.map { ($0, "mallory") })),
        ("its own, twice", fields((forged + forged).map { ($0.uppercased(), "mallory") })),
        (
            "all of them",
            fields(forged.map { ($0, "mallory") })
                + fields([("Connection", names.joined(separator: ","))])
                + metadata(["Owner", "Admin", "Plan"])
        ),
        (
            "method override",
            fields([("X-HTTP-Method-Override", "PATCH"), ("Connection", "X-User")])
        ),
    ]

    private func authorizer() throws -> LoopbackOrigin {
        try LoopbackOrigin(
            fields: [
                "Spoolgate-Owner: alice", "Spoolgate-Set-X-User: alice", "Spoolgate-Set-X-Group: a",
                "Spoolgate-Set-X-Group: b", "Spoolgate-Set-X-Role:",
                "Spoolgate-Set-X-Forwarded-User: alice",
                "Spoolgate-Set-Authorization: Bearer inner", "Spoolgate-Set-Cookie:",
                "Spoolgate-Set-Content-Type: text/authorized", "Spoolgate-Set-X-Meta-Owner: alice",
                "Spoolgate-Set-X-Meta-Admin:", "Spoolgate-Set-X-Meta-Full-Name: alice",
                "Spoolgate-Set-X-Request-Id: authorizer",
                "Spoolgate-Set-Content-Disposition: attachment; filename=authorized",
            ]
        )
    }

    private let context = ExchangeContext(
        origin: "https://up.example",
        interimStatuses: [104],
        remoteAddress: "192.0.2.7",
        scheme: "https"
    )

    /// The path of a location with an origin.
    private static func path(of location: String) -> String {
        String(location.trimmingPrefix("https://up.example"))
    }

    private func send(_ sender: Sender, _ fields: HTTPFields, to test: GatewayUnderTest) throws
        -> Int?
    {
        switch sender {
        case .ordinary, .streamed:
            return test.serve(
                ScriptedExchange(.post, "/files", fields, ["hello"], context: context)
            )
            .status
        case .tus:
            let protocolFields: HTTPFields = [.tusResumable: "1.0.0"]
            var creation = protocolFields
            creation[.uploadLength] = "5"
            // Otherwise it would be no creation.
            let others = fields.filter { $0.name.canonicalName != "x-http-method-override" }
            let made = test.serve(
                ScriptedExchange(.post, "/files", creation + others, [], context: context)
            )
            let location = try #require(made[.location], "\(made.text)")
            var append = protocolFields
            append[.uploadOffset] = "0"
            append[.contentType] = Tus.mediaType
            return test.serve(
                ScriptedExchange(
                    .patch,
                    Self.path(of: location),
                    append + fields.filter { $0.name != .contentType },
                    ["hello"],
                    context: context
                )
            ).status
        case .draft3, .draft6, .draft10:
            let made = test.serve(
                .creation(
                    ["hel"],
                    complete: false,
                    version: sender.version,
                    fields: fields,
                    context: context
                )
            )
            let location = try #require(made.location ?? made[.location], "\(made.text)")
            return test.serve(
                .append(
                    Self.path(of: location),
                    at: 3,
                    ["lo"],
                    version: sender.version,
                    fields: fields,
                    context: context
                )
            ).status
        }
    }

    @Test(
        "a client neither removes nor replaces what others have set",
        arguments: attacks.indices,
        Moment.allCases
    )
    func cross(attack: Int, moment: Moment) throws {
        let authorizer = try authorizer()
        defer { authorizer.stop() }
        for sender in Sender.allCases where sender != .streamed || moment == .now {
            let origin = try LoopbackOrigin(status: "201 Created")
            defer { origin.stop() }
            let test = try GatewayUnderTest(origin.target) { settings, route in
                settings.correlationField = .made("x-request-id")
                settings.queueRunInterval = .milliseconds(20)
                route.authorization.url = try? ServiceURL(authorizer.base)
                route.fields.set = [
                    HTTPField(name: .made("x-operator"), value: "op"),
                    HTTPField(name: .made("x-meta-plan"), value: "paid"),
                    HTTPField(name: .made("x-request-id"), value: "operator"),
                ]
                route.fields.metadataPrefix = "X-Meta-"
                route.fields.forwarding = .both
                route.digest = .sha256
                route.honoursIdempotencyKey = true
                route.ordinary = sender == .streamed ? .pass : route.ordinary
                route.reply = moment == .now ? .upstream : .accepted
            }
            let status = try send(sender, Self.attacks[attack].fields, to: test)
            let label = "\(Self.attacks[attack].name) by \(sender), \(moment)"
            switch moment {
            case .now: break
            case .queue: try test.gateway.deliveries.startQueue()
            case .restart:
                let other = try test.another()
                try other.deliveries.startQueue()
                defer { _ = other.deliveries.stopQueue(until: .after(.seconds(10))) }
                try eventually("\(label): delivered") { origin.requests.count == 1 }
            }
            try eventually("\(label): delivered, \(status ?? 0)") { origin.requests.count == 1 }
            try judge(
                try #require(origin.requests.first),
                isStreamed: sender == .streamed,
                isRecorded: moment != .now || sender.version != nil || sender == .tus,
                label
            )
        }
    }

    private func judge(
        _ request: LoopbackOrigin.Request,
        isStreamed: Bool,
        isRecorded: Bool,
        _ label: String
    ) throws {
        var sent: [String: [String]] = [:]
        for line in request.fieldLines {
            let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            let name = parts[0].lowercased().replacing("_", with: "-")
            sent[name, default: []].append(parts[1].trimmingPrefix(" ").description)
        }
        for (name, values) in Self.expected {
            #expect(sent[name] ?? [] == values, "\(name): \(label)")
        }
        #expect(sent["content-length"] == ["5"], "\(label)")
        #expect(sent["via"]?.last?.contains("spoolgate-") == true, "\(label)")
        let correlation = sent["x-request-id"] ?? []
        #expect(correlation.count == 1, "\(label)")
        #expect(!["operator", "authorizer"].contains(correlation.first), "\(label)")
        #expect(!isRecorded || sent["idempotency-key"]?.isEmpty == false, "\(label)")
        #expect(isStreamed || sent["repr-digest"]?.first?.contains("sha-256=:") == true, "\(label)")
    }

    @Test(
        "what the authorizer has set holds for each choice of credentials that uses any",
        arguments: [FieldPolicy.Credentials.creation, .completing]
    )
    func credentials(_ whose: FieldPolicy.Credentials) throws {
        let authorizer = try authorizer()
        defer { authorizer.stop() }
        let origin = try LoopbackOrigin(status: "201 Created")
        let test = try GatewayUnderTest(origin.target) { _, route in
            route.authorization.url = try? ServiceURL(authorizer.base)
            route.fields.credentials = whose
            route.fields.credentialFields.append(.made("x-key"))
        }
        let old: HTTPFields = [.authorization: "Bearer a", .cookie: "a", .made("x-key"): "old"]
        let new: HTTPFields = [.authorization: "Bearer b", .cookie: "b", .made("x-key"): "new"]
        let location = test.createPartial(fields: old)
        #expect(test.serve(.append(location, at: 5, fields: new)).status == 201)
        let sent = try #require(origin.requests.first)
        #expect(sent.values("authorization") == ["Bearer inner"])
        #expect(sent.values("cookie") == [])
        #expect(sent.values("x-key") == ["new"], "the client's own can be renewed")
    }

    @Test("metadata fills no field of a form that the authorizer has removed")
    func formFields() throws {
        let authorizer = try LoopbackOrigin(fields: ["Spoolgate-Set-X-Role:"])
        defer { authorizer.stop() }
        let origin = try LoopbackOrigin(status: "201 Created")
        let test = try GatewayUnderTest(origin.target) { _, route in
            route.authorization.url = try? ServiceURL(authorizer.base)
            route.form = .multipart
            route.multipart.fromFields = [.init(name: "role", source: .made("x-role"))]
        }
        let location = test.createPartial(fields: Self.metadata(["role"]))
        #expect(test.serve(.append(location, at: 5)).status == 201)
        let sent = try #require(origin.requests.first)
        #expect(!String(decoding: sent.content, as: UTF8.self).contains("mallory"))
    }
}
