// `probe` against a real nginx, with the shipped files and with common mistakes. No probe may leave an upload or cause
// a delivery.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("probe", .enabled(if: Command.find("nginx") != nil, "nginx is not installed"))
struct ProbeTests {
    struct Line: Decodable {
        var check: String?
        var level: String?
        var text: String?
        var fix: [String]?
        var failures: Int?
        var warnings: Int?
    }

    struct Report {
        var status: Int32
        var lines: [Line]
        var shown: String

        init(_ command: Command) throws {
            status = command.status
            shown = command.output + command.errors
            lines = try command.output.split(separator: "\n").map {
                try JSONDecoder().decode(Line.self, from: Data($0.utf8))
            }
        }

        var complaints: [String] {
            lines.filter { ["warn", "fail"].contains($0.level) }
                .map { "\($0.level ?? "") \($0.check ?? "")" }
        }

        func expect(_ check: String, _ level: String, _ words: [String] = []) {
            let found = lines.filter { $0.check == check }
            #expect(found.contains { $0.level == level }, "\(check): \(shown)")
            let texts = found.map { ([$0.text ?? ""] + ($0.fix ?? [])).joined(separator: "\n") }
            for word in words {
                #expect(texts.contains { $0.contains(word) }, "\(word): \(shown)")
            }
        }
    }

    private final class Stage {
        let origin: LoopbackOrigin
        let sandbox: Sandbox

        init(
            _ front: Front,
            origin publicOrigin: String? = nil,
            routeSettings: [String] = []
        ) throws {
            origin = try LoopbackOrigin(status: "201 Created")
            sandbox = try Sandbox(
                upstream: origin.base,
                // The test's disk has room for it.
                routeSettings: ["limits: {max-size: 64MiB}"] + routeSettings,
                front: front,
                origin: publicOrigin
            )
        }

        var secure: String { "https://localhost:\(sandbox.tlsPort)/files/" }
        var plain: String { "http://localhost:\(sandbox.port)/files/" }

        var local: [String] {
            let folder = sandbox.directory.path()
            let nginx = [
                Command.find("nginx") ?? "nginx", "-p", "\(folder)/nginx", "-c",
                "\(folder)/nginx/nginx.conf", "-T",
            ]
            return ["--local", "--nginx", nginx.joined(separator: " "), "--http", "1.1"]
        }

        /// Probes, and checks that nothing is left in the spool or delivered.
        func probe(_ url: String, _ arguments: [String] = []) throws -> Report {
            let trust = ["--cacert", "\(sandbox.directory.path())/nginx/server.pem"]
            let report = try Report(
                Command(
                    Sandbox.program,
                    ["probe", "--json", "--size", "2MiB", url] + trust + arguments
                )
            )
            try expectNothingLeft(report.shown)
            return report
        }

        func expectNothingLeft(_ shown: String) throws {
            let list = try sandbox.spoolgate("list", "--json")
            #expect(list.status == 0 && list.output.isEmpty, "\(shown)\(list.output)")
            #expect(origin.requests.isEmpty, "\(origin.requests.map(\.line))")
        }
    }

    // Long because the probe waits for what nginx does while content pauses.
    @Test("a shipped nginx with the module has no findings")
    func shipped() throws {
        let page = "https://app.example"
        let stage = try Stage(.nginxWithModule, routeSettings: ["cors: {origins: [\"\(page)\"]}"])
        let report = try stage.probe(stage.secure, ["--origin", page])
        #expect(report.complaints.isEmpty, "\(report.shown)")
        #expect(report.status == 0)
        #expect(
            report.lines.compactMap(\.check) == [
                "reach", "gateway", "login", "streaming", "104-http1", "104-http2", "cut",
                "receive", "size",
                "location", "names", "errors", "fields", "speed", "cors", "tus", "cleanup",
            ]
        )
        let rest = report.lines.dropLast().filter { !["login", "receive"].contains($0.check) }
        #expect(rest.allSatisfy { $0.level == "ok" }, "\(report.shown)")
        report.expect("login", "skip", ["no login is required"])
        report.expect("receive", "skip", ["not tested (--local)"])
        #expect(report.lines.last?.failures == 0 && report.lines.last?.warnings == 0)
        report.expect("reach", "ok", ["TLS 1.3, HTTP/1.1 and HTTP/2, nginx"])
        report.expect("streaming", "ok", ["4.0MiB of 4.0MiB"])
        report.expect("104-http1", "ok", ["before content"])
        report.expect("104-http2", "ok", ["before content"])
        report.expect("cut", "ok", ["4.0MiB kept; resumed"])
        report.expect("size", "ok", ["64.0MiB would be accepted"])
        report.expect("names", "ok", ["13 different endings"])
    }

    // Long because of two probes, which wait while content pauses.
    @Test("people get the same in columns; a single HTTP version can be requested")
    func shown() throws {
        let stage = try Stage(.nginxWithModule)
        let command = try Command(
            Sandbox.program,
            ["probe", "--http", "1.1", "--size", "1MiB", stage.plain]
        )
        #expect(command.status == 0, "\(command.output)")
        let lines = command.output.split(separator: "\n")
        #expect(lines.first == "spoolgate probe \(stage.plain)")
        #expect(lines.dropFirst().first?.hasPrefix(" ok    reach       no TLS, HTTP/1.1") == true)
        #expect(lines.contains(" -     cors        not tested (--origin)"))
        #expect(lines.last == "no failures, no warnings.")
        let second = try stage.probe(stage.secure, ["--http", "2"])
        #expect(second.complaints.isEmpty, "\(second.shown)")
        second.expect("reach", "ok", ["TLS 1.3, HTTP/2"])
        second.expect("size", "skip")
        try stage.expectNothingLeft(command.output)
    }

    struct Mistake: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var front: Front
        var complaints: [String]
        /// Parts of the first finding's text and the line to change.
        var words: [String]
        var origin: String?
        var arguments: [String] = []
        var path = "/files/"
    }

    static let mistakes = [
        Mistake(
            testDescription: "uploads are buffered",
            front: .nginxMistaken(.buffering),
            complaints: ["fail streaming", "fail cut"],
            words: ["0B of 4.0MiB", "fastcgi_request_buffering off;"]
        ),
        Mistake(
            testDescription: "large content is refused",
            front: .nginxMistaken(.smallContent),
            complaints: ["fail size"],
            words: ["413 from nginx, not the gateway", "client_max_body_size 0;"]
        ),
        Mistake(
            testDescription: "all content but the smallest is refused",
            front: .nginxMistaken(.standardContent),
            complaints: ["fail streaming", "fail cut", "fail size", "fail speed"],
            words: ["413 from nginx, not the gateway", "client_max_body_size 0;"]
        ),
        Mistake(
            testDescription: "the parameters are not included",
            front: .nginxMistaken(.noParameters),
            complaints: ["fail gateway"],
            words: ["500 from the gateway", "include /usr/share/spoolgate/nginx/location*.conf;"]
        ),
        Mistake(
            testDescription: "the public origin is another one",
            front: .nginx,
            complaints: ["warn location"],
            words: [
                "http://uploads.example, not to https://localhost", "SPOOLGATE_ORIGIN",
            ],
            origin: "http://uploads.example"
        ),
        Mistake(
            testDescription: "no public origin is passed",
            front: .nginxMistaken(.noOrigin),
            complaints: ["warn location"],
            words: ["only a path", "fastcgi_param SPOOLGATE_ORIGIN https://localhost"]
        ),
        Mistake(
            testDescription: "locations for scripts and images take files from the gateway",
            front: .nginxMistaken(.otherLocations),
            complaints: ["fail names"],
            words: [
                "/files/spoolgate-probe.php: 404 from nginx", "spoolgate-probe.jpg",
                "location ^~ /files/ {",
            ]
        ),
        Mistake(
            testDescription: "locations for scripts and images beside the shipped one take nothing",
            front: .nginxMistaken(.locationsBeside),
            complaints: [],
            words: []
        ),
        Mistake(
            testDescription: "nginx has error pages of its own",
            front: .nginxMistaken(.errorPages),
            complaints: ["fail errors"],
            words: ["the gateway's 409", "from nginx", "fastcgi_intercept_errors off;"]
        ),
        Mistake(
            testDescription: "the path is none of the gateway's",
            front: .nginx,
            complaints: ["fail gateway"],
            words: ["404 from nginx", "include snippets/spoolgate*.conf;"],
            path: "/elsewhere/"
        ),
        Mistake(
            testDescription: "the distribution's parameters stand in place of the shipped location",
            front: .nginxMistaken(.distributionsParameters),
            complaints: ["fail streaming", "fail cut"],
            words: ["fastcgi_request_buffering off;", "location*.conf;"]
        ),
        Mistake(
            testDescription: "content may not pause",
            front: .nginxMistaken(.shortGap),
            complaints: ["warn silence"],
            words: ["was closed after ", "client_body_timeout 60s;"],
            arguments: ["--thorough"]
        ),
        Mistake(
            testDescription: "a login stands in front",
            front: .nginxWithLogin(.password),
            complaints: ["fail gateway"],
            words: ["401 from nginx", "Basic realm", "-H \"Authorization: Basic $(printf"]
        ),
    ]

    // Long because each probe waits for what nginx does while content pauses.
    @Test("a mistake in nginx is named with the line to change", arguments: mistakes)
    func mistaken(mistake: Mistake) throws {
        if mistake.front == .nginxMistaken(.distributionsParameters),
            !FileManager.default.fileExists(atPath: "/etc/nginx/fastcgi_params")
        {
            return
        }
        let stage = try Stage(mistake.front, origin: mistake.origin)
        let url = stage.secure.replacing("/files/", with: mistake.path)
        let report = try stage.probe(url, mistake.arguments)
        // Without the module there is no 104, a separate finding.
        let complaints = report.complaints.filter { !$0.contains("104") }
        #expect(complaints == mistake.complaints, "\(report.shown)")
        let isFailure = mistake.complaints.contains { $0.hasPrefix("fail") }
        #expect(report.status == (isFailure ? 69 : 1))
        guard let first = mistake.complaints.first else { return }
        let check = first.split(separator: " ")
        report.expect(String(check[1]), String(check[0]), mistake.words)
        if mistake.front == .nginxMistaken(.standardContent) {
            let fixes = report.lines.filter { $0.level == "fail" }.map(\.fix)
            #expect(fixes == Array(repeating: ["client_max_body_size 0;"], count: 4))
        }
    }

    @Test("without the module there is no 104, and the missing package is named")
    func noModule() throws {
        let stage = try Stage(.nginx)
        let report = try stage.probe(stage.secure)
        #expect(report.complaints == ["warn 104-http1", "warn 104-http2"], "\(report.shown)")
        #expect(report.status == 1)
        report.expect("104-http1", "warn", ["apt install libnginx-mod-http-interim"])
    }

    @Test("with the required login there are no findings")
    func login() throws {
        let stage = try Stage(.nginxWithLogin(.password))
        let login = "Authorization: Basic \(Data("alice:secret".utf8).base64EncodedString())"
        let report = try stage.probe(stage.plain, ["-H", login, "--http", "1.1"])
        #expect(report.complaints == ["warn 104-http1"], "\(report.shown)")
        report.expect("login", "ok", ["made-up", "401 from nginx"])
        let none = try stage.probe(stage.plain, ["--http", "1.1"])
        none.expect("login", "ok", ["made-up", "401 from nginx"])
    }

    @Test("a login that accepts any name is found, with an accepted one and with none")
    func openLogin() throws {
        let stage = try Stage(
            .nginxMistaken(.openLogin),
            routeSettings: ["anonymous: refuse"]
        )
        let words = [
            "anyone can log in", "auth_basic \"Uploads\";", "SPOOLGATE_OWNER $remote_user",
        ]
        let none = try stage.probe(stage.plain, ["--http", "1.1"])
        #expect(none.complaints == ["fail gateway", "fail login"], "\(none.shown)")
        none.expect("login", "fail", words)
        none.expect("cleanup", "ok", ["1 upload cancelled"])
        let claimed = try stage.probe(
            stage.plain,
            [
                "-H", "Authorization: Basic \(Data("alice:x".utf8).base64EncodedString())",
                "--http", "1.1",
            ]
        )
        #expect(claimed.complaints == ["fail login", "warn 104-http1"], "\(claimed.shown)")
        claimed.expect("login", "fail", words)
    }

    private static func basic(_ login: String) -> [String] {
        ["-H", "Authorization: Basic \(Data(login.utf8).base64EncodedString())", "--http", "1.1"]
    }

    @Test("a wrong password and a field without one are distinguished")
    func wrongPassword() throws {
        let stage = try Stage(.nginxWithLogin(.password))
        let wrong = try stage.probe(stage.plain, Self.basic("alice:wrong"))
        wrong.expect("gateway", "fail", ["the name 'alice' and its password in -H are refused"])
        #expect(!wrong.shown.contains("wrong\""), "the password is shown")
        let plain = try stage.probe(
            stage.plain,
            ["-H", "Authorization: Basic alice:secret", "--http", "1.1"]
        )
        plain.expect("gateway", "fail", ["in Base64", "base64 -w0"])
    }

    @Test(
        "a password file that is missing or unreadable for nginx is named with its fix"
    )
    func passwordFile() throws {
        let missing = try Stage(.nginxMistaken(.noPasswords))
        let right = try missing.probe(missing.plain, Self.basic("alice:secret"))
        right.expect(
            "gateway",
            "fail",
            ["403 from nginx", "password file is missing", "error.log"]
        )
        let none = try missing.probe(missing.plain, ["--http", "1.1"])
        none.expect("login", "warn", ["got 403", "auth_basic_user_file"])
        let local = try missing.probe(missing.plain, missing.local)
        local.expect(
            "login",
            "fail",
            ["does not exist (/nowhere is missing)", "403 to every login", "install -D -g "]
        )
        // Otherwise the workers run as the same user and can read it.
        guard geteuid() == 0 else { return }
        let closed = try Stage(.nginxMistaken(.closedPasswords))
        let file = "\(closed.sandbox.directory.path())/nginx/closed.htpasswd"
        try "alice:{PLAIN}secret\n".write(toFile: file, atomically: true, encoding: .utf8)
        chmod(file, 0o600)
        let refused = try closed.probe(closed.plain, Self.basic("alice:secret"))
        refused.expect("gateway", "fail", ["500 from nginx", "password file"])
        let looked = try closed.probe(closed.plain, closed.local)
        looked.expect("login", "fail", ["may not read \(file)", "chgrp "])
    }

    /// Whether nginx speaks only HTTP/2 on a port without TLS that has it enabled.
    private static let isOld: Bool = {
        let said = try? Command(Command.find("nginx") ?? "nginx", ["-v"]).errors
        let version = said?.firstMatch(of: /nginx\/(\d+)\.(\d+)\.(\d+)/)
        let numbers = version.map { [Int($0.1) ?? 0, Int($0.2) ?? 0, Int($0.3) ?? 0] } ?? []
        return numbers.lexicographicallyPrecedes([1, 25, 1])
    }()

    @Test(
        "a port that speaks only HTTP/2 without TLS is named",
        .enabled(if: isOld, "this nginx accepts both versions on one port")
    )
    func cleartextHTTP2() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        // A sandbox detects nginx by a connection, without HTTP/1.1.
        let sandbox = try Sandbox(
            upstream: origin.base,
            front: .nginxMistaken(.cleartextHTTP2)
        )
        let url = "http://localhost:\(sandbox.port)/files/"
        let report = try Report(Command(Sandbox.program, ["probe", "--json", url]))
        report.expect("gateway", "fail", ["HTTP/2 without TLS", "listen 80;"])
    }

    @Test("a stopped gateway and a socket that nginx may not use are distinguished")
    func socket() throws {
        let stage = try Stage(.nginx)
        let folder = stage.sandbox.directory.path()
        let local = stage.local
        let well = try stage.probe(stage.plain, local)
        well.expect("nginx", "ok", ["location ^~ /files/", "/snippets/spoolgate.conf:"])
        well.expect("socket", "ok", ["spoolgate.sock", "may connect"])
        // Only root's nginx has workers of another user.
        if geteuid() == 0 {
            chmod("\(folder)/spoolgate.sock", 0o600)
            let closed = try stage.probe(stage.plain, local)
            #expect(closed.status == 69)
            closed.expect("gateway", "fail", ["nginx does not reach the gateway"])
            closed.expect("socket", "fail", ["may not connect to", "mode 0600", "SocketMode=0660"])
            chmod("\(folder)/spoolgate.sock", 0o666)
        }
        stage.sandbox.kill()
        let dead = try stage.probe(stage.plain, local)
        #expect(dead.status == 69)
        dead.expect("gateway", "fail", ["nginx does not reach the gateway", "systemctl status"])
        #expect(!dead.shown.contains("--local"))
        dead.expect("socket", "fail", ["no process listens", "systemctl start"])
    }

    /// A configuration, and the finding about nginx's writes to the spool.
    struct Receiving: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var front = Front.nginxWithModule
        var routeSettings: [String] = []
        var level = "ok"
        var words: [String]
    }

    // Long because each probe waits while content pauses.
    @Test(
        "with --local the daemon reports whether nginx writes to the spool, and if not why",
        .enabled(if: NginxConfiguration.hasLane),
        arguments: [
            Receiving(
                testDescription: "as it is shipped",
                words: [
                    "in use: nginx writes content into the spool on threads (spool_receive on;)"
                ]
            ),
            Receiving(
                testDescription: "the route says off",
                routeSettings: ["spool-receive: off"],
                words: ["not in use: the route has spool-receive: off"]
            ),
            Receiving(
                testDescription: "without the module",
                front: .nginx,
                level: "skip",
                words: ["not in use: nginx's files do not load ngx_http_interim_module"]
            ),
            Receiving(
                testDescription: "nginx buffers",
                front: .nginxMistaken(.buffering),
                level: "skip",
                words: ["not in use: nginx"]
            ),
        ]
    )
    func receiving(receiving: Receiving) throws {
        let stage = try Stage(receiving.front, routeSettings: receiving.routeSettings)
        let report = try stage.probe(stage.plain, stage.local)
        report.expect("receive", receiving.level, receiving.words)
    }

    @Test("a refused connection, an untrusted certificate, and a host without an address")
    func unreachable() throws {
        let stage = try Stage(.nginx)
        let port = try FreePort.take(1)[0]
        for (url, words) in [
            ("http://localhost:\(port)/files/", ["nginx runs"]),
            ("http://nowhere.invalid/files/", ["DNS"]),
        ] {
            let report = try stage.probe(url)
            #expect(report.status == 69)
            report.expect("reach", "fail", words)
        }
        let report = try Report(Command(Sandbox.program, ["probe", "--json", stage.secure]))
        #expect(report.status == 69)
        report.expect("reach", "fail", ["ssl_certificate"])
        try stage.expectNothingLeft(report.shown)
    }

    @Test("another application receives one request, and nothing is left there")
    func otherApplication() throws {
        let application = try LoopbackOrigin { connection in
            while try connection.receiveRequest() != nil {
                try connection.response("201 Created", fields: ["Location: /things/1"])
            }
        }
        let command = try Command(
            Sandbox.program,
            ["probe", "--json", "\(application.base)/things"]
        )
        let report = try Report(command)
        #expect(report.status == 69)
        report.expect("gateway", "fail", ["without an upload resource", "include snippets/"])
        #expect(application.requests.map(\.method) == ["POST"])
    }

    @Test("a stopped probe cancels its uploads", arguments: [SIGINT, SIGTERM])
    func stopped(signal: Int32) throws {
        let stage = try Stage(.nginxWithModule)
        let log = stage.sandbox.directory.appending(path: "probe.log")
        let probe = try Daemon(
            Sandbox.program,
            ["probe", "--http", "1.1", "--thorough", stage.plain],
            log: log
        )
        try eventually("an upload is received") {
            try stage.sandbox.spoolgate("list").output.contains("receiving")
        }
        probe.signal(signal)
        #expect(probe.wait() == 69)
        let text = try String(contentsOf: log, encoding: .utf8)
        #expect(text.contains("cleanup") && text.contains("cancelled"), "\(text)")
        #expect(text.contains("stopped by a signal"))
        try stage.expectNothingLeft(text)
    }

    @Test(
        "an invalid URL is refused",
        arguments: [
            ["files"], ["ftp://a/"], ["http://a/", "-H", "x"], ["http://a/", "--size", "0"],
            ["http://a/", "--origin", "https://a/"], ["http://a/", "--http", "3"],
            ["http://a/", "--cacert", "/nowhere"], ["http://a/", "--nginx", "nginx -T"],
            ["http://a/", "--socket", "/run/admin.sock"],
        ]
    )
    func refused(arguments: [String]) throws {
        #expect(try Command(Sandbox.program, ["probe"] + arguments).status == 64)
    }
}
