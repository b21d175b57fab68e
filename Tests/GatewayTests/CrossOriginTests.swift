// Preflights, and the CORS fields of every final response, for pages of other origins.

import HTTPTypes
import SpoolgateExchange
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateRequests
@testable import SpoolgateSettings

@Suite("pages of other origins at the gateway")
struct CrossOriginTests {
    private let app = "https://app.example"
    private let evil = "https://evil.example"

    /// An upstream with CORS fields of its own.
    private func outspoken() throws -> LoopbackOrigin {
        try LoopbackOrigin(
            status: "203 Said",
            fields: [
                "Access-Control-Allow-Origin: https://evil.example",
                "Access-Control-Allow-Credentials: true", "Access-Control-Expose-Headers: X-A",
                "Vary: Accept", "X-A: 1",
            ],
            content: "seen"
        )
    }

    private func gateway(_ origin: LoopbackOrigin) throws -> GatewayUnderTest {
        try GatewayUnderTest(origin.target) { [app] _, route in
            route.crossOrigin.origins = [app]
        }
    }

    private func preflight(_ target: String, from origin: String) -> ScriptedExchange {
        ScriptedExchange(
            .options,
            target,
            [
                .origin: origin, .accessControlRequestMethod: "PATCH",
                .accessControlRequestHeaders: "upload-offset, x-evil",
            ],
            length: .unknown
        )
    }

    @Test(
        "preflights get a response on every resource, however busy the gateway is",
        arguments: [
            "/files", "*", "/files/upload-resource/seen0000000000000000000000",
            "/files/upload-resource/seen0000000000000000000000/status", "/files/upload-resource/x",
        ],
        [false, true]
    )
    func preflights(target: String, isLast: Bool) throws {
        let origin = try outspoken()
        let test = try gateway(origin)
        let asked = preflight(target, from: app)
        test.gateway.serve(asked, isLast: isLast)
        #expect(asked.record.status == 200)
        #expect(asked.record.contentLength == 0)
        #expect(asked.record[.accessControlAllowOrigin] == app)
        #expect(asked.record[.accessControlAllowHeaders]?.contains("x-evil") == true)
        let stranger = preflight(target, from: evil)
        test.gateway.serve(stranger, isLast: isLast)
        #expect(stranger.record.status == 200)
        #expect(stranger.record.head?.fields.map(\.name) == [.vary])
        #expect(origin.requests.isEmpty)
    }

    @Test("if the route names no origins, preflights and the upstream's fields pass")
    func off() throws {
        let origin = try outspoken()
        let test = try GatewayUnderTest(origin.target)
        let record = test.serve(preflight("/files", from: app))
        #expect(origin.requests.first?.line == "OPTIONS /files HTTP/1.1")
        #expect(record[.accessControlAllowOrigin] == evil)
        #expect(record[.uploadLimit] != nil)
        let creation = test.serve(.creation(fields: [.origin: app]))
        #expect(creation[.accessControlAllowOrigin] == evil)
        #expect(creation[.vary] == "Accept")
    }

    private func responses(
        of test: GatewayUnderTest,
        from origin: String?
    ) -> [(name: String, record: ScriptedExchange.Record)] {
        let fields: HTTPFields = origin.map { [.origin: $0] } ?? [:]
        func ask(_ method: HTTPRequest.Method, _ target: String, _ more: HTTPFields = [:])
            -> ScriptedExchange.Record
        {
            var all = fields
            all.append(contentsOf: more)
            return test.serve(ScriptedExchange(method, target, all, length: .unknown))
        }
        let created = test.serve(.creation(complete: false, fields: fields))
        let location = created.location ?? "none"
        return [
            ("creation", created),
            ("offset", ask(.head, location)),
            ("status", ask(.get, location + "/status")),
            ("methods", ask(.options, location)),
            ("wrong offset", test.serve(.append(location, at: 3, ["x"], fields: fields))),
            ("final response", test.serve(.append(location, at: 5, ["x"], fields: fields))),
            ("final response again", test.serve(.append(location, at: 6, fields: fields))),
            ("unknown", ask(.head, "/files/upload-resource/x")),
            ("whole upload", test.serve(.creation(fields: fields))),
            ("ordinary upload", test.serve(ScriptedExchange(.post, "/files", fields, ["x"]))),
            ("passed", ask(.get, "/page")),
            ("options", ask(.options, "/files")),
        ]
    }

    private let statuses = [201, 204, 200, 204, 409, 203, 203, 404, 203, 203, 203, 203]

    @Test("every response to an allowed origin says so, and removes the upstream's fields")
    func allowed() throws {
        let origin = try outspoken()
        defer { origin.stop() }
        let test = try gateway(origin)
        let responses = responses(of: test, from: app)
        #expect(responses.map(\.record.status) == statuses)
        for (name, record) in responses {
            let fields = record.head?.fields ?? [:]
            #expect(fields[values: .accessControlAllowOrigin] == [app], "\(name)")
            #expect(fields[.accessControlAllowCredentials] == nil, "\(name)")
            #expect(fields[values: .vary].last == "Origin", "\(name)")
            let exposed = fields[values: .accessControlExposeHeaders]
            #expect(exposed.count == 1 && exposed[0].hasPrefix("Location, "), "\(name)")
        }
    }

    @Test("another origin, and a request without one, are served without such fields")
    func others() throws {
        let origin = try outspoken()
        defer { origin.stop() }
        let test = try gateway(origin)
        for page in [evil, nil] {
            let responses = responses(of: test, from: page)
            #expect(responses.map(\.record.status) == statuses)
            for (name, record) in responses {
                let fields = record.head?.fields ?? [:]
                #expect(fields[values: .vary].last == "Origin", "\(name)")
                let told = fields.filter { $0.name.canonicalName.hasPrefix("access-control") }
                #expect(told.isEmpty, "\(name)")
            }
        }
    }

    @Test("rejected and refused requests get them too")
    func rejected() throws {
        let test = try GatewayUnderTest { [app] _, route in
            route.crossOrigin.origins = [app]
            route.crossOrigin.allowsCredentials = true
            route.anonymous = .refuse
        }
        let busy = ScriptedExchange.creation(fields: [.origin: app])
        test.gateway.serve(busy, isLast: true)
        #expect(busy.record.status == 503)
        #expect(busy.record[.accessControlAllowOrigin] == app)
        #expect(busy.record[.accessControlAllowCredentials] == "true")
        let anonymous = test.serve(.creation(fields: [.origin: app]))
        #expect(anonymous.status == 403)
        #expect(anonymous[.accessControlAllowOrigin] == app)
    }

    @Test("a reload changes the origins for requests that begin later")
    func reload() throws {
        let origin = try outspoken()
        defer { origin.stop() }
        let test = try gateway(origin)
        test.reload { $0.routes[RouteSettings.defaultName]?.crossOrigin.origins = ["*"] }
        let record = test.serve(ScriptedExchange(.get, "/page", [.origin: evil], length: .unknown))
        #expect(record.status == 203)
        #expect(record[.accessControlAllowOrigin] == "*")
    }
}
