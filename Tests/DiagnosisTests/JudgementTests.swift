// The level of each finding, and the directive that fixes it.

import HTTPTypes
import SpoolgateCurl
@testable import SpoolgateDiagnosis
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

struct Judged: Sendable, CustomTestStringConvertible {
    var finding: Finding
    var level: Finding.Level
    /// Parts of the sentence and of the fixes.
    var words: [String]

    var testDescription: String { finding.line }

    init(_ finding: Finding, _ level: Finding.Level, _ words: String...) {
        (self.finding, self.level, self.words) = (finding, level, words)
    }

    func expectRight() {
        #expect(finding.level == level)
        let text = ([finding.text] + finding.fixes).joined(separator: "\n")
        for word in words { #expect(text.contains(word), "\(text)") }
        #expect(
            [.ok, .skipped].contains(level) == finding.fixes.isEmpty,
            "what is wrong has a fix"
        )
    }
}

@Suite struct JudgementTests {
    private static func response(
        _ status: Int,
        _ fields: HTTPFields = [:],
        content: String = ""
    ) -> ProbeResponse {
        ProbeResponse(
            head: ResponseHead(status: .init(code: status), fields: fields),
            content: content
        )
    }

    private static func page(_ status: Int, _ fields: HTTPFields = [:]) -> ProbeResponse {
        response(status, fields, content: "<hr><center>nginx</center>")
    }

    private static func problem(
        _ status: Int,
        _ code: String,
        _ fields: HTTPFields = [:]
    ) -> ProbeResponse {
        var fields = fields
        fields[.contentType] = "application/problem+json"
        return response(
            status,
            fields,
            content: "{\"title\":\"x\",\"detail\":\"say \\\"why\\\"\",\"code\":\"\(code)\"}\n"
        )
    }

    private static let silent = ProbeResponse(
        head: nil,
        fault: ClientFault(.noResponse, "Empty reply")
    )
    private static let taken = response(
        201,
        [
            .location: "https://up.example/files/upload-resource/1", .uploadOffset: "0",
            .uploadLimit: "max-size=17179869184, min-size=0, max-age=60",
        ]
    )

    // MARK: The path to the gateway

    private static func url(_ text: String = "https://up.example/files/") -> ProbeURL {
        guard let url = ProbeURL(text) else { preconditionFailure("\(text) is a URL") }
        return url
    }

    private static func reach(
        _ url: String,
        _ asked: [ClientRequest.Version],
        http2: Bool? = nil,
        fault: ClientFault? = nil
    ) -> Finding {
        var seen = ReachEvidence(isSecure: url.hasPrefix("https"), versions: asked)
        seen.tls = seen.isSecure ? "TLS 1.3" : nil
        (seen.hasHTTP2, seen.fault, seen.server) = (http2, fault, "nginx/1.22.1")
        return seen.finding
    }

    private static func gateway(
        _ response: ProbeResponse,
        options: ProbeResponse? = nil,
        version: Int? = nil
    ) -> Finding {
        GatewayEvidence(response: response, options: options, url: url(), version: version).finding
    }

    private static func login(_ response: ProbeResponse, _ value: String) -> Finding {
        GatewayEvidence(response: response, url: url(), login: ProbeLogin([.authorization: value]))
            .finding
    }

    private static func secure(_ trouble: TLSProblem) -> Finding {
        var fault = ClientFault(.noTLS, "words of OpenSSL")
        fault.tls = trouble
        return reach("https:", [.http1], fault: fault)
    }

    static let way = [
        Judged(
            reach("https:", [.http1, .http2], http2: true),
            .ok,
            "TLS 1.3, HTTP/1.1 and HTTP/2, nginx/1.22.1"
        ),
        Judged(reach("https:", [.http1, .http2], http2: false), .warning, "not offered", "http2"),
        Judged(reach("https:", [.http2], http2: false), .failure, "http2"),
        Judged(reach("http:", [.http1, .http2], http2: false), .ok, "no TLS, HTTP/1.1"),
        Judged(reach("http:", [.http2], http2: false), .failure, "no HTTP/2 without TLS"),
        Judged(reach("https:", [.http1]), .ok, "TLS 1.3, HTTP/1.1, nginx"),
        Judged(
            reach("https:", [.http1], fault: ClientFault(.noTLS, "self-signed")),
            .failure,
            "self-signed",
            "ssl_certificate"
        ),
        Judged(
            reach("https:", [.http1], fault: ClientFault(.noConnection, "refused")),
            .failure,
            "refused",
            "nginx runs"
        ),
        Judged(secure(.expired), .failure, "this one has expired"),
        Judged(secure(.authority), .failure, "--cacert FILE"),
        Judged(secure(.name), .failure, "a certificate with the host's name"),
        Judged(secure(.notTLS), .failure, "listen 443 ssl;", "does not speak TLS", "http URL"),
        Judged(
            login(page(401), "Basic YWxpY2U6c2VjcmV0"),
            .failure,
            "the name 'alice' and its password in -H are refused",
            "printf 'alice:%s"
        ),
        Judged(login(page(401), "Basic alice:secret"), .failure, "in Base64", "base64 -w0"),
        Judged(login(page(401), "alice:secret"), .failure, "in Base64", "base64 -w0"),
        Judged(login(page(401), "Bearer abc"), .failure, "credentials in -H (Bearer)", "expired"),
        Judged(
            login(page(403), "Basic YWxpY2U6c2VjcmV0"),
            .failure,
            "password file is missing",
            "auth_basic_user_file",
            "error.log"
        ),
        Judged(gateway(page(500)), .failure, "error.log", "auth_basic_user_file"),
        Judged(
            gateway(response(400, content: "The plain HTTP request was sent to HTTPS port")),
            .failure,
            "speaks TLS"
        ),
        Judged(
            gateway(
                ProbeResponse(
                    head: nil,
                    fault: ClientFault(.noResponse, "Received HTTP/0.9 when not allowed")
                )
            ),
            .failure,
            "HTTP/2 without TLS",
            "listen 80;"
        ),
        Judged(
            LoginEvidence(response: page(403)).finding,
            .warning,
            "is missing",
            "auth_basic_user_file"
        ),
        Judged(LoginEvidence(response: page(500)).finding, .failure, "may not read", "error.log"),
        Judged(gateway(taken, version: 10), .ok, "interop version 10, uploads of up to 16.0GiB"),
        Judged(gateway(taken), .failure, "snippets"),
        Judged(gateway(page(404)), .failure, "404 from nginx", "snippets/spoolgate*.conf"),
        Judged(gateway(page(401, [.wwwAuthenticate: "Basic"])), .failure, "login", "-H "),
        Judged(gateway(page(403)), .failure, "403 from nginx", "allow and deny"),
        Judged(gateway(page(413)), .failure, "client_max_body_size 0;"),
        Judged(gateway(page(502)), .failure, "does not reach", "systemctl status"),
        Judged(gateway(silent, options: page(502)), .failure, "does not reach", "systemctl"),
        Judged(gateway(silent, options: silent), .failure, "Empty reply", "systemctl"),
        Judged(gateway(page(301, [.location: "/x"])), .failure, "redirected to /x"),
        Judged(
            gateway(problem(500, "front-misconfigured")),
            .failure,
            "500 from the gateway: say \"why\"",
            "location*.conf"
        ),
        Judged(gateway(problem(500, "unknown-route")), .failure, "SPOOLGATE_ROUTE"),
        Judged(gateway(problem(403, "anonymous-refused")), .failure, "SPOOLGATE_OWNER"),
        Judged(gateway(problem(503, "too-many-requests")), .failure, "journalctl"),
        Judged(LoginEvidence(response: page(401)).finding, .ok, "made-up", "401 from nginx"),
        Judged(
            LoginEvidence(response: problem(403, "anonymous-refused")).finding,
            .ok,
            "403 from the gateway"
        ),
        Judged(LoginEvidence(response: silent).finding, .skipped, "no response"),
        Judged(
            LoginEvidence(response: taken).finding,
            .failure,
            "anyone can log in",
            "auth_basic \"Uploads\";",
            "SPOOLGATE_OWNER $remote_user"
        ),
        Judged(
            LocationEvidence(location: "https://up.example/x", url: url()).finding,
            .ok,
            "https://up.example"
        ),
        Judged(LocationEvidence(location: "https://UP.example:443/x", url: url()).finding, .ok),
        Judged(
            LocationEvidence(location: "http://up.example/x", url: url()).finding,
            .warning,
            "fastcgi_param SPOOLGATE_ORIGIN https://up.example;"
        ),
        Judged(
            LocationEvidence(location: "/files/x", url: url()).finding,
            .warning,
            "SPOOLGATE_ORIGIN"
        ),
        Judged(
            LocationEvidence(location: "files/x", url: url()).finding,
            .failure,
            "SPOOLGATE_ORIGIN"
        ),
    ]

    @Test("the request path", arguments: way)
    func judgesWay(judged: Judged) { judged.expectRight() }

    // MARK: Content

    private static func streaming(_ arrived: Int64?) -> Finding {
        let told = arrived == nil ? silent : Self.response(204)
        return StreamingEvidence(
            sent: 4 << 20,
            arrived: arrived,
            after: .milliseconds(2_100),
            response: told
        ).finding
    }

    private static func cut(_ kept: Int64?, _ resumed: ProbeResponse?) -> Finding {
        CutEvidence(sent: 4 << 20, kept: kept, resumed: resumed, response: silent).finding
    }

    private static func speed(_ response: ProbeResponse) -> Finding {
        let run = SpeedEvidence.Run(
            version: .http1,
            bytes: 7,
            time: .seconds(1),
            response: response
        )
        return SpeedEvidence(runs: [run], roundTrip: .zero).finding
    }

    private static func size(_ response: ProbeResponse, isWelcome: Bool = false) -> Finding {
        SizeEvidence(declared: 16 << 30, isWelcome: isWelcome, response: response).finding
    }

    private static func speed(_ first: Int64, _ second: Int64, trip: Duration) -> Finding {
        let runs = [(ClientRequest.Version.http1, first), (.http2, second)].map {
            SpeedEvidence.Run(
                version: $0.0,
                bytes: $0.1,
                time: .seconds(1),
                response: response(204)
            )
        }
        return SpeedEvidence(runs: runs, roundTrip: trip).finding
    }

    static let content = [
        Judged(streaming(4 << 20), .ok, "4.0MiB of 4.0MiB had arrived after 2.1s"),
        Judged(streaming(0), .failure, "0B of 4.0MiB", "fastcgi_request_buffering off;"),
        Judged(streaming(1 << 20), .warning, "delays it", "fastcgi_request_buffering"),
        Judged(streaming(nil), .failure, "Empty reply"),
        Judged(cut(4 << 20, response(204)), .ok, "4.0MiB kept; resumed on a second connection"),
        Judged(cut(4 << 20, response(201)), .ok),
        Judged(cut(0, response(204)), .failure, "fastcgi_request_buffering off;"),
        Judged(cut(1 << 20, response(204)), .warning, "fastcgi_request_buffering off;"),
        Judged(cut(4 << 20, problem(409, "x")), .failure, "not resumed: 409 from the gateway"),
        Judged(cut(nil, nil), .failure, "no offset"),
        Judged(
            CutEvidence(sent: 0, kept: 0, resumed: response(204), response: page(413)).finding,
            .failure,
            "content was refused with 413 from nginx, not",
            "client_max_body_size 0;"
        ),
        Judged(
            StreamingEvidence(sent: 0, arrived: nil, after: .zero, response: page(413)).finding,
            .failure,
            "content was refused with 413 from nginx, not",
            "client_max_body_size 0;"
        ),
        Judged(speed(page(413)), .failure, "h1: 413 from nginx", "client_max_body_size 0;"),
        Judged(speed(problem(413, "too-large")), .failure, "413 from the gateway", "journalctl"),
        Judged(size(silent, isWelcome: true), .ok, "16.0GiB"),
        Judged(size(page(413)), .failure, "413 from nginx, not", "client_max_body_size 0;"),
        Judged(size(problem(507, "no-room")), .warning, "507 from the gateway", "spool.quota"),
        Judged(size(problem(413, "too-large")), .failure, "413 from the gateway"),
        Judged(speed(100_000_000, 90_000_000, trip: .microseconds(200)), .ok, "0.2ms", "h2 90MB/s"),
        Judged(
            speed(100_000_000, 650_000, trip: .milliseconds(100)),
            .warning,
            "h2 0.6MB/s at 100ms round trip",
            "window of about 63.4KiB",
            "client_body_buffer_size 1m;"
        ),
        Judged(speed(700_000, 650_000, trip: .milliseconds(100)), .ok),
        Judged(speed(100_000_000, 10_000_000, trip: .milliseconds(100)), .ok),
        Judged(speed(silent), .failure, "h1: no response"),
        Judged(SilenceEvidence(borne: .seconds(70), wasEnded: false).finding, .ok, "70s"),
        Judged(SilenceEvidence(borne: .seconds(60), wasEnded: true).finding, .ok, "60s"),
        Judged(
            SilenceEvidence(borne: .milliseconds(3_100), wasEnded: true).finding,
            .warning,
            "3.1s",
            "client_body_timeout 60s;"
        ),
    ]

    @Test("content", arguments: content)
    func judgesContent(judged: Judged) { judged.expectRight() }

    // MARK: Protocols

    private static func interim(
        _ fields: HTTPFields?,
        sent: Int64 = 0,
        _ final: ProbeResponse = taken
    ) -> Finding {
        let first = fields.map {
            ClientInterim(
                head: ResponseHead(status: .init(code: 104), fields: $0),
                after: .milliseconds(3),
                sent: sent
            )
        }
        return InterimEvidence(version: .http1, first: first, response: final).finding
    }

    private static let conflict = problem(409, "mismatching-offset", [.uploadOffset: "0"])
    private static let unknown = problem(404, "unknown-upload")

    private static func crossOrigin(
        _ preflight: ProbeResponse,
        _ creation: ProbeResponse = response(
            201,
            [
                .accessControlAllowOrigin: "https://app",
                .accessControlExposeHeaders: "Upload-Offset, Location",
            ]
        )
    ) -> Finding {
        CrossOriginEvidence(origin: "https://app", preflight: preflight, creation: creation).finding
    }

    private static let allowing: HTTPFields = [
        .accessControlAllowOrigin: "*", .accessControlAllowMethods: "POST, PATCH",
        .accessControlAllowHeaders: "content-type, upload-offset",
    ]

    private static func tus(
        _ options: HTTPFields,
        _ creation: ProbeResponse?,
        _ retrieval: ProbeResponse?
    ) -> Finding {
        TusEvidence(options: response(204, options), creation: creation, retrieval: retrieval)
            .finding
    }

    private static let tusSpoken: HTTPFields = [.tusVersion: "1.0.0"]

    static let protocols = [
        Judged(interim([.location: "/x"]), .ok, "before content, after 3.0ms"),
        Judged(interim([.location: "/x"], sent: 5), .ok, "during content"),
        Judged(interim([:]), .warning, "Location"),
        Judged(interim(nil), .warning, "no 104", "libnginx-mod-http-interim"),
        Judged(interim(nil, page(500)), .failure, "500 from nginx"),
        Judged(
            interim(nil, silent),
            .failure,
            "no response",
            "apt remove libnginx-mod-http-interim"
        ),
        Judged(
            interim([.location: "/x"], silent),
            .failure,
            "104, but then no response",
            "apt remove libnginx-mod-http-interim"
        ),
        Judged(
            ErrorsEvidence(conflict: conflict, unknown: unknown).finding,
            .ok,
            "409 and 404 arrive"
        ),
        Judged(
            ErrorsEvidence(conflict: page(409), unknown: unknown).finding,
            .failure,
            "the gateway's 409",
            "fastcgi_intercept_errors off;"
        ),
        Judged(
            ErrorsEvidence(conflict: conflict, unknown: page(404)).finding,
            .failure,
            "the gateway's 404",
            "fastcgi_intercept_errors off;"
        ),
        Judged(crossOrigin(response(200, allowing)), .ok, "https://app may upload"),
        Judged(crossOrigin(page(401)), .failure, "401 from nginx", "$spoolgate_realm"),
        Judged(crossOrigin(page(405)), .failure, "cors: {origins: [\"https://app\"]}"),
        Judged(crossOrigin(response(204)), .failure, "may not upload", "cors:"),
        Judged(
            crossOrigin(response(204, [.accessControlAllowOrigin: "https://app"])),
            .failure,
            "PATCH"
        ),
        Judged(crossOrigin(response(200, allowing), response(201)), .failure, "not read Location"),
        Judged(tus([:], nil, nil), .skipped, "not enabled"),
        Judged(
            tus(tusSpoken, response(201), response(204, [.uploadOffset: "0"])),
            .ok,
            "tus 1.0.0"
        ),
        Judged(tus(tusSpoken, page(413), nil), .failure, "creation failed: 413 from nginx"),
        Judged(
            tus(tusSpoken, response(201), silent),
            .failure,
            "offset retrieval failed: no response"
        ),
        Judged(CleanupEvidence(cancelled: 1, left: []).finding, .ok, "1 upload cancelled"),
        Judged(
            CleanupEvidence(cancelled: 2, left: [], unnamed: 1).finding,
            .warning,
            "2 uploads cancelled; 1 may be left",
            "limits.max-age"
        ),
        Judged(
            CleanupEvidence(cancelled: 3, left: [("https://a/b", silent)]).finding,
            .failure,
            "3 uploads cancelled, 1 left",
            "curl -X DELETE https://a/b"
        ),
    ]

    @Test("protocols", arguments: protocols)
    func judgesProtocols(judged: Judged) { judged.expectRight() }

    @Test("the parts of a URL that are compared")
    func urls() throws {
        let url = try #require(ProbeURL("HTTPS://Up.Example:8443/files/?a=b"))
        #expect(url.isSecure && url.host == "up.example" && url.port == 8443)
        #expect(url.path == "/files/" && url.target == "/files/?a=b")
        #expect(url.origin == "https://Up.Example:8443")
        #expect(ProbeURL("http://a")?.target == "/")
        #expect(ProbeURL("http://a?b")?.target == "/?b")
        #expect(ProbeURL("http://[::1]:80/")?.host == "::1")
        #expect(ProbeURL("http://[::1]/")?.port == 80)
        for text in [
            "", "a", "/files/", "ftp://a/", "http://", "http://a b/", "http://u@a/", "http://a/#x",
        ] {
            #expect(ProbeURL(text) == nil, "\(text)")
        }
    }
}
