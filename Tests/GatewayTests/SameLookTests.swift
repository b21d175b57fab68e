// Names with different bytes that are equal as Swift strings, wherever a client's text is compared with another
// client's or the operator's.

import HTTPTypes
@testable import SpoolgateExchange
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateDelivery
@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

@Suite("Names that look alike")
struct SameLookTests {
    static let pairs = [
        ("K", "\u{212A}"), ("jos\u{E9}", "jose\u{301}"), ("\u{C5}sa", "\u{212B}sa"),
        ("a;b", "a\u{37E}b"),
    ]

    private func context(_ owner: String, route: String? = nil) -> ExchangeContext {
        ExchangeContext(route: route, owner: ExactText(owner), interimStatuses: [104])
    }

    @Test("Swift compares them as equal, or these tests prove nothing", arguments: pairs)
    func premise(one: String, other: String) {
        #expect(one == other && one.hashValue == other.hashValue)
        #expect(!one.utf8.elementsEqual(other.utf8))
    }

    @Test("neither names nor clients are confused, as keys too", arguments: pairs)
    func names(one: String, other: String) {
        #expect(ExactText(one) != ExactText(other))
        #expect(ExactText(one) == ExactText(String(decoding: Array(one.utf8), as: UTF8.self)))
        #expect(Set([ExactText(one), ExactText(other)]).count == 2)
        let clients = [one, other].map { ClientName(owner: ExactText($0), address: nil) }
        #expect(Set(clients).count == 2)
        #expect(clients[0].hashValue != clients[1].hashValue)
        #expect([one: 1][exactly: one] == 1)
        #expect([one: 1][exactly: other] == nil)
        #expect([one: 1][exactly: "another"] == nil)
    }

    @Test("one client cannot read, append to, end or cancel the other's upload", arguments: pairs)
    func owners(one: String, other: String) throws {
        for (owner, stranger) in [(one, other), (other, one)] {
            let test = try GatewayUnderTest()
            let location = test.createPartial("hello", context: context(owner))
            let requests: [ScriptedExchange] = [
                .retrieval(location, context: context(stranger)),
                .append(location, at: 5, ["x"], complete: false, context: context(stranger)),
                .append(location, at: 5, context: context(stranger)),
                .cancellation(location, context: context(stranger)),
                ScriptedExchange(.get, location, context: context(stranger)),
                ScriptedExchange(.get, location + "/status", context: context(stranger)),
            ]
            for request in requests {
                #expect(test.serve(request).status == 404, "\(request.request.method)")
            }
            #expect(test.serve(.retrieval(location, context: context(owner))).offset == 5)
            // As stored for a later daemon.
            let kept = try #require(try test.summaries().first?.creation)
            #expect(kept.owner == ExactText(owner) && kept.owner != ExactText(stranger))
        }
    }

    @Test("one's upload is not a partial upload of the other", arguments: pairs)
    func parts(one: String, other: String) throws {
        let test = try GatewayUnderTest()
        let part = test.serve(
            ScriptedExchange(
                .post,
                "/files",
                [
                    .tusResumable: Tus.version, .uploadConcat: "partial", .uploadLength: "5",
                    .contentType: Tus.mediaType,
                ],
                ["hello"],
                context: context(one)
            )
        )
        let location = try #require(part.location)
        func join(_ owner: String) -> Int? {
            test.serve(
                ScriptedExchange(
                    .post,
                    "/files",
                    [.tusResumable: Tus.version, .uploadConcat: "final;\(location)"],
                    [],
                    length: .known(0),
                    context: context(owner)
                )
            ).status
        }
        #expect(join(other) == 404)
        #expect(join(one) == 201)
    }

    @Test("one's use does not count for the other", arguments: pairs)
    func counts(one: String, other: String) throws {
        let test = try GatewayUnderTest { settings, _ in
            settings.clients.maximumUploads = 1
            settings.clients.maximumConcurrent = 1
        }
        _ = test.createPartial(context: context(one))
        #expect(test.serve(.creation(context: context(one))).status == 429)
        #expect(test.serve(.creation(complete: false, context: context(other))).status == 201)
        // As another daemon reads them.
        let found = try test.spool.layout.census(readingRecords: true)
        #expect(found.unfinished.count == 2)
        // The limit of concurrent requests too.
        let busy = ScriptedExchange.creation(
            ["x", .stuck],
            length: .known(9),
            context: context("\(one)-busy")
        )
        let running = try test.start(busy)
        #expect(busy.waitUntilStuck())
        let second = ScriptedExchange.creation(complete: false, context: context("\(other)-busy"))
        #expect(test.serve(second).status == 201)
        busy.interrupt()
        _ = try running.finish()
    }

    @Test("a route is not found by a name that only looks like its own", arguments: pairs)
    func routes(one: String, other: String) throws {
        let test = try GatewayUnderTest { settings, route in settings.routes[one] = route }
        let location = test.createPartial(context: context("a", route: one))
        let stranger = test.serve(.creation(context: context("a", route: other)))
        #expect(stranger.status == 500)
        let asked = test.serve(.retrieval(location, context: context("a", route: other)))
        #expect(asked.offset == nil)
        #expect(
            test.serve(.retrieval(location, context: context("a", route: one))).status == 204
        )
        var settings = Settings()
        settings.routes[one] = RouteSettings()
        #expect(Retention(settings).knows(one) && !Retention(settings).knows(other))
    }

    @Test("an origin, a field's word and a URL are compared by their bytes")
    func fields() {
        var crossing = CrossOrigin()
        crossing.origins = ["https://K.example"]
        let allowed = HTTPField.Name("Access-Control-Allow-Origin")!
        #expect(
            crossing.preflightResponse(to: "https://K.example").head.fields[allowed] != nil
        )
        #expect(
            crossing.preflightResponse(to: "https://\u{212A}.example").head.fields[allowed] == nil
        )
        #expect(UploadConcat("final;/a /b") == .final(["/a", "/b"]))
        #expect(UploadConcat("final\u{37E}/a") == nil)
        #expect(UploadConcat("final;\u{301}/a") == .final(["\u{301}/a"]))
        #expect(MediaType.wellFormed("text/html;q=\u{E9}") != nil)
        #expect(MediaType.wellFormed("text/html\u{37E}q=1") == nil)
    }

    @Test("a connection option removes only the field with exactly its name")
    func connectionOptions() {
        let name = HTTPField.Name("X-Key")!
        func isKept(_ options: String) -> Bool {
            var fields: HTTPFields = [.connection: options, name: "1"]
            fields.applyConnection()
            return fields[name] != nil
        }
        #expect(!isKept("x-key"))
        #expect(isKept("X-\u{212A}ey"))
        #expect(!isKept("X-Key,\u{301}"))
    }

    @Test("a path of two slashes is never a host")
    func slashes() throws {
        let test = try GatewayUnderTest()
        for path in ["//files", "//\u{301}files"] {
            let record = test.serve(.creation(complete: false, target: path))
            let location = try #require(record.location)
            #expect(location.utf8.starts(with: "/.//".utf8), "\(location)")
        }
    }

    @Test("an authorizer that names an owner in invalid text admits no request")
    func grants() {
        let name = HTTPField.Name("Spoolgate-Owner")!
        func grant(_ bytes: [UInt8]) -> Grant? {
            Grant(HTTPFields([HTTPField(name: name, value: bytes)]))
        }
        #expect(grant(Array("jos\u{E9}".utf8))?.owner == "jos\u{E9}")
        #expect(grant(Array("jose\u{301}".utf8))?.owner != "jos\u{E9}")
        #expect(grant([0x61, 0xFF]) == nil)
        #expect(grant([0x61, 0xFE]) == nil)
    }
}
