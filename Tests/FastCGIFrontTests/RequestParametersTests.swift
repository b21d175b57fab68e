// Which parameters make which request head, and which are refused.

import HTTPTypes
@testable import SpoolgateExchange
@testable import SpoolgateFastCGIFront
import SpoolgateRequests
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import Testing

@Suite struct RequestParametersTests {
    private func read(
        _ parameters: [String],
        limits: RequestParameters.Limits = .init()
    ) -> (head: Result<RequestHead, Refusal>, context: ExchangeContext) {
        RequestParameters.read(
            (["REQUEST_METHOD=PUT", "REQUEST_URI=/a"] + parameters).map { Array($0.utf8) },
            limits: limits
        )
    }

    private func lines(_ head: RequestHead) -> [String] {
        head.fields.map { "\($0.name.rawName): \($0.value)" }
    }

    private func code(_ result: Result<RequestHead, Refusal>) -> Int? {
        switch result {
        case .success: nil
        case .failure(let refusal): refusal.status.code
        }
    }

    @Test("fields keep their order, repeat as often as sent and lose outer whitespace")
    func fields() throws {
        let head = try read([
            "HTTP_UPLOAD_OFFSET=\t 5 ", "CONTENT_TYPE=text/plain", "HTTP_COOKIE=a",
            "HTTP_UPLOAD_OFFSET=6", "HTTP_X_EMPTY=", "HTTP_PROXY=p", "SERVER_NAME=x",
            "HTTP_X_TEXT=gr\u{FC}n",
        ]).head.get()
        #expect(
            lines(head) == [
                "upload-offset: 5", "content-type: text/plain", "cookie: a", "upload-offset: 6",
                "x-empty: ", "proxy: p", "x-text: gr\u{FC}n",
            ]
        )
    }

    @Test("names that stand for the framing or another parameter are not fields")
    func replacedFields() throws {
        let head = try read([
            "HTTP_CONTENT_TYPE=text/html", "HTTP_CONTENT_LENGTH=7",
            "HTTP_TRANSFER_ENCODING=chunked", "CONTENT_TYPE=text/plain", "CONTENT_TYPE=a/b",
            "CONTENT_LENGTH=3",
        ]).head.get()
        #expect(lines(head) == ["content-type: text/plain"])
        #expect(head.contentLength == .known(3))
    }

    @Test(
        "a content length is digits, or unknown",
        arguments: [
            ("", .unknown), ("-1", .unknown), ("0", .known(0)), ("007", .known(7)),
            ("9223372036854775807", .known(.max)),
        ] as [(String, ContentLength)]
    )
    func contentLength(_ value: String, _ expected: ContentLength) throws {
        #expect(try read(["CONTENT_LENGTH=\(value)"]).head.get().contentLength == expected)
    }

    @Test(
        "a malformed request is refused with 400",
        arguments: [
            "CONTENT_LENGTH=9223372036854775808", "CONTENT_LENGTH=+5", "CONTENT_LENGTH=-2",
            "CONTENT_LENGTH=5 5", "CONTENT_LENGTH=0x5", "HTTP_X=a\u{1}b", "HTTP_X=a\rb",
            "HTTP_X=a\nb", "HTTP_X=\u{7F}", "HTTP_=a", "HTTP_X Y=a", "HTTP_X(=a", "HTTP_:PATH=/a",
            "REQUEST_METHOD=PU T", "REQUEST_METHOD=P\u{E9}", "REQUEST_URI=a", "REQUEST_URI=**",
            "REQUEST_URI=/a b", "REQUEST_URI=/a\tb", "REQUEST_URI=/\u{7F}",
            "REQUEST_URI=http://example.org/",
        ]
    )
    func malformed(_ parameter: String) {
        #expect(code(read([parameter]).head) == 400)
    }

    @Test("bytes that are not text make no target and no owner")
    func noText() {
        for name in ["REQUEST_URI=/", "SPOOLGATE_OWNER=a", "SPOOLGATE_ROUTE=a"] {
            let parameters = ["REQUEST_METHOD=PUT", "REQUEST_URI=/a"].map { Array($0.utf8) }
            let result = RequestParameters.read(parameters + [Array(name.utf8) + [0xFF]])
            #expect(code(result.head) == 400, "\(name)")
        }
    }

    @Test("a target with a # or without UTF-8 is refused with that reason")
    func targetFaults() {
        func reason(_ target: [UInt8]) -> String {
            let parameters = ["REQUEST_METHOD=PUT"].map { Array($0.utf8) }
            let result = RequestParameters.read(parameters + [Array("REQUEST_URI=".utf8) + target])
            guard case .failure(let refusal) = result.head else { return "" }
            return refusal.detail
        }
        #expect(reason(Array("/a#b".utf8)).contains("the target contains #; encode it as %23"))
        #expect(reason(Array("/a".utf8) + [0xFF]).contains("the target is not UTF-8"))
    }

    private func names(_ lines: [String]) throws -> [String] {
        try RequestParameters.read(lines.map { Array($0.utf8) }).head.get().fields
            .map { $0.name.canonicalName }
    }

    private static let configured = [
        "HTTP_X_USER=alice", "HTTP_X_REQUEST_ID=7", "REQUEST_METHOD=PUT", "REQUEST_URI=/a",
    ]

    @Test(
        "a client's Connection is applied once, and removes no field that the web server has set",
        arguments: [
            ["X-User, close,x-hop , X-REQUEST-ID"], ["X-User", "close", "X-Hop"],
            // A comma with a combining mark still separates.
            ["X-User,\u{301}a,x-hop"], ["keep-alive, x-user,X-HOP"],
        ]
    )
    func connectionOptions(options: [String]) throws {
        let lines = options.map { "HTTP_CONNECTION=\($0)" }
        let told = try names(Self.configured + ["HTTP_X_HOP=1", "HTTP_ACCEPT=a"] + lines)
        #expect(told == ["x-user", "x-request-id", "accept"])
        let before = try names(Self.configured + lines + ["HTTP_X_HOP=1", "HTTP_X_A=1"])
        #expect(before == ["x-user", "x-request-id", "x-a"])
    }

    @Test("Connection removes nothing if the order hides which fields the web server has set")
    func hiddenOrigin() throws {
        // lighttpd sends its own parameters last.
        let client = ["HTTP_X_USER=alice", "HTTP_X_HOP=1", "HTTP_CONNECTION=x-hop, x-user"]
        let told = try names(client + ["REQUEST_METHOD=PUT", "REQUEST_URI=/a"])
        #expect(told == ["x-user", "x-hop"])
        let mixed = ["HTTP_CONNECTION=x-hop, x-user", "REQUEST_METHOD=PUT", "REQUEST_URI=/a"]
        #expect(try names(mixed + ["HTTP_X_USER=alice", "HTTP_X_HOP=1"]) == ["x-user", "x-hop"])
    }

    @Test("no client hides fields of routing, credentials, representations or upload protocols")
    func endToEnd() throws {
        let fields = [
            "host", "authorization", "cookie", "content-encoding", "content-range", "via",
            "x-http-method-override", "upload-offset", "upload-complete", "tus-resumable",
        ]
        let lines = fields.map { "HTTP_\($0.uppercased().replacing("-", with: "_"))=1" }
        let options = "HTTP_CONNECTION=\(fields.joined(separator: ", "))"
        #expect(
            try names(["REQUEST_METHOD=PUT", "REQUEST_URI=/a", options] + lines) == fields
        )
    }

    // CGI has no difference between _ and -, so X_User is X-User.
    @Test("the web server's field replaces the client's")
    func replaced() throws {
        #expect(
            try names(Self.configured + ["HTTP_X_USER=mallory", "HTTP_X_A=1"])
                == ["x-user", "x-request-id", "x-a"]
        )
    }

    @Test(
        "a client's fields with the gateway's prefix are dropped, and similar names are not"
    )
    func reserved() throws {
        let lines = [
            "REQUEST_METHOD=PUT", "REQUEST_URI=/a", "HTTP_SPOOLGATE_OWNER=a",
            "HTTP_SPOOLGATE_SET=b",
            "HTTP_Spoolgate-Event=c", "HTTP_SPOOLGATES=d", "HTTP_SPOOLGATE=e",
            "HTTP_X_SPOOLGATE_A=f",
        ]
        let fields = try RequestParameters.read(lines.map { Array($0.utf8) }).head.get().fields
        #expect(fields.map(\.name.canonicalName) == ["spoolgates", "spoolgate", "x-spoolgate-a"])
    }

    @Test(
        "a target is kept byte by byte",
        arguments: [
            "*", "/", "//a/.b/c..?c=%2F../..", "/gr\u{FC}n", "/...", "/a.b/..c", "/%2e%2ea",
            "/%",
            "/%2",
        ]
    )
    func target(_ target: String) throws {
        #expect(try read(["REQUEST_URI=\(target)"]).head.get().target == target)
    }

    @Test(
        "a path with dot segments is refused, because the location was chosen by the path without them",
        arguments: [
            "/admin/../files/u", "/..", "/.", "/a/.", "/a/./b", "/a/%2e%2E/b", "/a/.%2e?x",
            "/a/..%2ffiles",
            "/a/..%5cb", "/a/%2e", "/../x#y",
        ]
    )
    func dotSegments(_ target: String) {
        #expect(code(read(["REQUEST_URI=\(target)"]).head) == 400)
    }

    @Test("a missing parameter is a configuration error and named")
    func missing() {
        for name in ["REQUEST_METHOD", "REQUEST_URI"] {
            let present = name == "REQUEST_URI" ? "REQUEST_METHOD=GET" : "REQUEST_URI=/"
            for parameters in [[present], [present, "\(name)="]] {
                let result = RequestParameters.read(parameters.map { Array($0.utf8) })
                guard case .failure(let refusal) = result.head else {
                    Issue.record("accepted without \(name)")
                    continue
                }
                #expect(refusal.status.code == 500)
                #expect(refusal.detail.contains("not pass \(name); set it with fastcgi_param"))
            }
        }
    }

    @Test("an oversized head is refused", arguments: [(200, 200, nil), (201, 201, 431)])
    func fieldCount(_ count: Int, _: Int, _ expected: Int?) {
        #expect(code(read((0..<count).map { "HTTP_X_\($0)=" }).head) == expected)
    }

    @Test("field bytes and target bytes have limits")
    func bytes() {
        let limits = RequestParameters.Limits(fields: 9, fieldBytes: 10, targetBytes: 4)
        #expect(code(read(["HTTP_X=123456789"], limits: limits).head) == nil)
        #expect(code(read(["HTTP_X=1234567890"], limits: limits).head) == 431)
        #expect(code(read(["HTTP_X=12345", "HTTP_Y=1234"], limits: limits).head) == 431)
        #expect(code(read(["REQUEST_URI=/abc"], limits: limits).head) == nil)
        #expect(code(read(["REQUEST_URI=/abcd"], limits: limits).head) == 414)
    }

    @Test("a role other than responder is refused")
    func role() {
        #expect(code(read(["FCGI_ROLE=RESPONDER"]).head) == nil)
        #expect(code(read(["FCGI_ROLE=AUTHORIZER"]).head) == 500)
    }

    @Test("the operator's words make the context, the last of a name counts, empty means absent")
    func context() {
        let context = read([
            "SPOOLGATE_ROUTE=x", "SPOOLGATE_ROUTE=photos", "SPOOLGATE_OWNER=anna",
            "SPOOLGATE_ORIGIN=https://example.org:8443", "SPOOLGATE_INTERIM=104 100",
            "REMOTE_ADDR=::1", "REQUEST_SCHEME=https", "HTTP_SPOOLGATE_OWNER=eve",
        ]).context
        #expect(
            context
                == ExchangeContext(
                    route: "photos",
                    owner: "anna",
                    origin: "https://example.org:8443",
                    interimStatuses: [104, 100],
                    remoteAddress: "::1",
                    scheme: "https"
                )
        )
        let empty = read([
            "SPOOLGATE_ROUTE=x", "SPOOLGATE_ROUTE=", "SPOOLGATE_OWNER=", "SPOOLGATE_ORIGIN=",
            "SPOOLGATE_INTERIM=", "REMOTE_ADDR=", "REQUEST_SCHEME=",
        ])
        #expect(empty.context == ExchangeContext(faults: [.noOrigin]))
        #expect(code(empty.head) == nil)
    }

    @Test(
        "an invalid origin is omitted and a fault, and the request is served",
        arguments: [
            "example.org", "https://a/b", "https://a?b", "https://u@a", "https://u:p@a", "ftp://a",
            "1s://a", "https:/a", "https://a b", "https://a:99999", "https://a:0",
            "https://a:80@evil",
            "https://a:b", "https://a:1:2", "https://:80", "https://[::1", "https://[::1]x",
            "https://[evil]", "https://a,b", "https://a%2e", "https://\u{e9}", "https://a\0",
            "://a",
            "https://a\"b", "https://]:80",
        ]
    )
    func badOrigin(_ text: String) {
        let result = read(["SPOOLGATE_ORIGIN=\(text)"])
        #expect(code(result.head) == nil)
        #expect(result.context.origin == nil)
        #expect(result.context.badOrigin == text)
        #expect(result.context.faults == [.badOrigin])
    }

    @Test(
        "an origin loses the default port of its scheme",
        arguments: [
            ("https://a:443", "https://a"), ("http://a:80", "http://a"),
            ("https://a:80", "https://a:80"),
            ("http://a:", "http://a"), ("http://[::1]:80", "http://[::1]"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("http://127.0.0.1:1", "http://127.0.0.1:1"),
        ]
    )
    func origin(_ text: String, _ expected: String) {
        let context = read(["SPOOLGATE_ORIGIN=\(text)"]).context
        #expect(context.origin == expected)
        #expect(context.faults == [])
    }

    @Test("an origin without host, from a request without Host, is invalid")
    func emptyOrigin() {
        let result = read(["SPOOLGATE_ORIGIN=https://"])
        #expect(result.context.origin == nil)
        #expect(code(result.head) == nil)
    }

    @Test(
        "the web server's configuration as the parameters show it",
        arguments: [
            (["SPOOLGATE_ORIGIN=https://a"], []), ([], [.noOrigin]),
            (["SPOOLGATE_ORIGIN="], [.noOrigin]),
            // Not a configuration fault: the client sent no Host.
            (["SPOOLGATE_ORIGIN=https://"], []),
            (["SPOOLGATE_ORIGIN=https://a", "SPOOLGATE_BODY_FILE="], []),
            (["SPOOLGATE_ORIGIN=https://a", "SPOOLGATE_BODY_FILE=/tmp/1"], [.buffered]),
            (["SPOOLGATE_ORIGIN=https://a", "HTTP_SPOOLGATE_BODY_FILE=/tmp/1"], []),
            (["SPOOLGATE_ORIGIN=https://a", "REQUEST_METHOD="], [.noMethod]),
            (["SPOOLGATE_ORIGIN=https://a", "REQUEST_URI="], [.noMethod]),
        ] as [([String], Set<WebServerFault>)]
    )
    func faults(_ parameters: [String], _ faults: Set<WebServerFault>) {
        #expect(read(parameters).context.faults == faults)
    }

    @Test(
        "an invalid operator's word gets 500",
        arguments: [
            "SPOOLGATE_INTERIM=on", "SPOOLGATE_INTERIM=104 200",
        ]
    )
    func wrongWord(_ parameter: String) {
        let result = read([parameter])
        #expect(code(result.head) == 500)
        #expect(result.context.origin == nil)
    }
}
