// The permissions of each origin, and the fields that grant them.

import HTTPTypes
import SpoolgateUploadProtocol
import Testing

@Suite("Pages of other origins")
struct CrossOriginTests {
    private let app = "https://app.example"

    private func rules(_ origins: String..., credentials: Bool = false) -> CrossOrigin {
        var rules = CrossOrigin()
        rules.origins = origins
        rules.allowsCredentials = credentials
        return rules
    }

    private func marked(_ rules: CrossOrigin, _ origin: String?, _ fields: HTTPFields = [:])
        -> HTTPFields
    {
        var fields = fields
        rules.mark(&fields, for: origin)
        return fields
    }

    @Test(
        "an origin is in the form that a browser sends",
        arguments: [
            "https://app.example", "http://localhost:5173", "https://app.example:444",
            "http://app.example:443", "https://a-b.c_d.example", "http://192.0.2.7",
            "http://[2001:db8::7]", "https://[::1]:8443", "capacitor://localhost", "http://a:65535",
            "chrome-extension://abcdefghijklmnop", "web+app://x:443",
        ]
    )
    func origins(_ text: String) { #expect(CrossOrigin.isOrigin(text)) }

    @Test(
        "a text that no browser would send could never match, and is not an origin",
        arguments: [
            "", "*", "null", "app.example", "//app.example", "://app.example", "https://",
            "https://app.example/", "https://app.example:443", "http://app.example:80",
            "https://App.example", "HTTPS://app.example", "https://app.example:", "https://a:0",
            "https://a:08443", "https://a:65536", "https://a:b", "https://a:+1", "https://u@a",
            "https://a b", "https://a,https://b", "https://*.example",
            "https://b\u{fc}cher.example",
            "https://[::1", "https://::1", "https://[app]", "https://[]", "1a://b", "https://a?b",
            "https://a\u{301}",
        ]
    )
    func noOrigins(_ text: String) { #expect(!CrossOrigin.isOrigin(text)) }

    @Test("a preflight is OPTIONS with an origin and a requested method")
    func preflight() {
        func isPreflight(_ method: HTTPRequest.Method, _ fields: HTTPFields) -> Bool {
            CrossOrigin.isPreflight(RequestHead(method: method, target: "/", fields: fields))
        }
        let fields: HTTPFields = [.origin: app, .accessControlRequestMethod: "PATCH"]
        #expect(isPreflight(.options, fields))
        #expect(!isPreflight(.post, fields))
        #expect(!isPreflight(.options, [.origin: app]))
        #expect(!isPreflight(.options, [.accessControlRequestMethod: "PATCH"]))
    }

    @Test("the preflight of an allowed origin lists methods and fields, also those asked for")
    func allowed() throws {
        let rules = rules("https://other.example", app, credentials: true)
        let response = rules.preflightResponse(
            to: app,
            requesting: "x-api-key, *,a\tb,if-match,\r\n,"
        )
        #expect(response.head.status == .ok)
        #expect(response.content.isEmpty)
        let fields = response.head.fields
        #expect(fields[.accessControlAllowOrigin] == app)
        #expect(fields[.accessControlAllowCredentials] == "true")
        #expect(fields[.accessControlMaxAge] == "7200")
        #expect(
            fields[.vary]
                == "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"
        )
        #expect(
            fields[.accessControlAllowMethods]
                == "POST, PUT, PATCH, HEAD, GET, DELETE, OPTIONS"
        )
        let names = try #require(fields[.accessControlAllowHeaders])
        #expect(
            names == """
                Authorization, Content-Type, Content-Disposition, Upload-Offset, Upload-Length, \
                X-HTTP-Method-Override, X-Request-ID, X-Requested-With, Idempotency-Key, Prefer, \
                Upload-Complete, Upload-Incomplete, Upload-Draft-Interop-Version, Content-Digest, \
                Repr-Digest, Want-Repr-Digest, Tus-Resumable, Upload-Metadata, \
                Upload-Defer-Length, Upload-Concat, Upload-Checksum, x-api-key, if-match
                """
        )
        #expect(fields.count == 6)
        let long = rules.preflightResponse(to: app, requesting: String(repeating: "x", count: 1025))
        #expect(long.head.fields[.accessControlAllowHeaders]?.hasSuffix("Upload-Checksum") == true)
    }

    @Test(
        "another origin's preflight allows nothing",
        arguments: [
            "https://evil.example", "http://app.example", "https://app.example:8443", "null", "*",
            "",
            "https://app.example.evil.example", "https://app.example, https://app.example",
        ]
    )
    func notAllowed(_ origin: String) {
        let response = rules(app, credentials: true).preflightResponse(to: origin)
        #expect(response.head.status == .ok)
        #expect(response.head.fields.map(\.name) == [.vary])
    }

    @Test("other responses name the readable fields, and replace any earlier ones")
    func others() {
        var rules = rules(app)
        rules.exposedFields = [.eTag]
        let said: HTTPFields = [
            .accessControlAllowOrigin: "*", .accessControlAllowCredentials: "true",
            .made("Access-Control-Anything"): "1", .vary: "Accept", .contentType: "text/plain",
        ]
        let fields = marked(rules, app, said)
        #expect(fields[.accessControlAllowOrigin] == app)
        #expect(fields[.accessControlAllowCredentials] == nil)
        #expect(fields[.vary] == "Accept, Origin")
        #expect(fields[.contentType] == "text/plain")
        #expect(
            fields[.accessControlExposeHeaders] == """
                Location, Content-Location, Link, Retry-After, Proxy-Status, Repr-Digest, \
                Upload-Offset, Upload-Length, Upload-Complete, Upload-Incomplete, Upload-Limit, \
                Upload-Draft-Interop-Version, Upload-Expires, Upload-Metadata, \
                Upload-Defer-Length, Upload-Concat, Tus-Resumable, Tus-Version, Tus-Extension, \
                Tus-Max-Size, Tus-Checksum-Algorithm, ETag
                """
        )
        #expect(fields.count == 5)
        for origin in ["https://evil.example", nil] {
            let fields = marked(rules, origin, said)
            #expect(fields.map(\.name) == [.vary, .contentType, .vary])
        }
    }

    @Test("if all origins are allowed none is named")
    func any() {
        let rules = rules("*")
        for origin in [app, "null", "what ever"] {
            #expect(
                rules.preflightResponse(to: origin).head.fields[.accessControlAllowOrigin] == "*"
            )
            #expect(marked(rules, origin)[.accessControlAllowOrigin] == "*")
        }
        #expect(marked(rules, nil)[.accessControlAllowOrigin] == nil)
    }
}
