// `check --live` with a daemon behind a real nginx.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("check --live", .enabled(if: Command.find("nginx") != nil, "nginx is not installed"))
struct CheckLiveTests {
    private func check(_ sandbox: Sandbox, _ arguments: [String] = []) throws -> ProbeTests.Report {
        try .init(sandbox.spoolgate(["check", "--live", "--json"] + arguments))
    }

    // Long because every part of the path is stopped once, and each check waits for it.
    @Test("running services pass, and stopped ones are named")
    func live() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let authorizer = try LoopbackOrigin(status: "204 No Content")
        let sandbox = try Sandbox(
            upstream: origin.base,
            routeSettings: [
                "authorize: {url: '\(authorizer.base)/may'}", "limits: {max-size: 1MiB}",
                "inspect: {command: /bin/true}",
            ],
            routes: [
                "slow": [
                    "upstream: \(origin.base)", "limits: {max-size: 1MiB}", "anonymous: refuse",
                    "spool-receive: off",
                ]
            ],
            front: .nginxWithModule
        )
        let report = try check(sandbox)
        for name in [
            "settings", "login", "socket", "daemon", "nginx", "spool", "upstream", "authorizer",
        ] {
            report.expect(name, "ok")
        }
        #expect(!report.complaints.contains { $0.hasPrefix("fail") }, "\(report.shown)")
        #expect(origin.requests.isEmpty && authorizer.requests.isEmpty, "a request was sent")
        report.expect("receive", "ok", ["slow: not in use: the route has spool-receive: off"])
        if NginxConfiguration.hasLane {
            report.expect("receive", "skip", ["default: no large content was received yet"])
            let resource = try sandbox.create("/files/a")
            _ = try sandbox.append(resource, Data(repeating: 7, count: 300_000), complete: false)
            try check(sandbox).expect("receive", "ok", ["default: in use: nginx writes content"])
        }
        #expect(!sandbox.log.contains("level=error"), "\(sandbox.log)")

        origin.stop()
        authorizer.stop()
        sandbox.kill()
        let broken = try check(sandbox)
        #expect(broken.status == 69)
        broken.expect("upstream", "fail", ["default: \(origin.base)"])
        broken.expect("authorizer", "fail", ["default: \(authorizer.base)"])
        broken.expect("socket", "fail", ["no process listens", "systemctl start"])
        broken.expect("daemon", "fail", ["no daemon responds on", "journalctl -u spoolgate"])
        if NginxConfiguration.hasLane {
            broken.expect("receive", "skip", ["default: the daemon was not reached"])
        }
    }

    // Long because each row has its own sandbox, certificate and server.
    @Test(
        "each TLS mistake is named with its setting, and a missing socket with its path",
        .enabled(if: OpenSSLCommand.isThere, "needs the openssl command")
    )
    func secureUpstreams() throws {
        let authority = try TestAuthority()
        let right = try OpenSSLCommand(serving: authority.identity("localhost"))
        let expired = try OpenSSLCommand(serving: authority.identity("localhost", isExpired: true))
        let other = try OpenSSLCommand(serving: authority.identity("other.example"))
        let plain = try LoopbackOrigin(status: "201 Created")
        let trust = "tls: {ca: \(authority.certificate)}"
        let secure = "https" + plain.base.dropFirst(4)
        let reverse = "http" + right.base.dropFirst(5)
        let absent = "/nowhere/app.sock"
        let targets: [String: (target: String, further: [String])] = [
            "right": (right.base, [trust]), "authority": (right.base, []),
            "expired": (expired.base, [trust]), "name": (other.base, [trust]),
            "plain": (secure, []), "reverse": (reverse, []), "http": (plain.base, []),
            "absent": ("unix:\(absent)", ["authorize: {url: \"unix:\(absent):/may\"}"]),
        ]
        let sandbox = try Sandbox(
            routes: targets.mapValues { one in
                ["upstream: \"\(one.target)\"", "anonymous: refuse", "limits: {max-size: 1MiB}"]
                    + one.further
            }
        )
        let report = try check(sandbox)
        report.expect(
            "upstream",
            "ok",
            ["right: \(right.base) accepts", "http: \(plain.base) accepts"]
        )
        report.expect(
            "upstream",
            "fail",
            [
                "authority: \(right.base): ", "routes.authority.tls.ca: a PEM file",
                "expired: \(expired.base): ", "renew the certificate of localhost:",
                "name: \(other.base): ", "subjectAltName",
                "plain: \(secure): ",
                "routes.plain.upstream: \(plain.base)  (",
                "reverse: \(reverse): this port speaks TLS",
                "routes.reverse.upstream: \(right.base)  (in place of \(reverse))",
                "absent: connect unix:\(absent): No such file or directory",
            ]
        )
        report.expect("authorizer", "fail", ["absent: connect unix:\(absent): ", "authorize.url"])
        #expect(!report.shown.contains("localhost port 80"), "\(report.shown)")
        let failures = report.lines.filter { $0.check == "upstream" && $0.level == "fail" }
        #expect(failures.count == 6, "\(report.shown)")
        #expect(!failures.contains { $0.fix?[0].hasPrefix("start the server") ?? true })
        #expect(plain.requests.isEmpty, "a request was sent")
        // A delivery's log names the socket, too.
        let put = try sandbox.curl([
            "-T", "/etc/hostname", "http://localhost:\(sandbox.port)/files/a",
        ])
        #expect(put.status == 0)
    }

    @Test("a delivery to a missing socket names its path and no port")
    func absentSocket() throws {
        let path = "/nowhere/app.sock"
        let sandbox = try Sandbox(upstream: "unix:\(path)")
        #expect(try sandbox.ask("PUT", "/files/a", content: Data("hello".utf8)).status == 502)
        let words = "connect unix:\(path): No such file or directory"
        #expect(sandbox.log.contains(words), "\(sandbox.log)")
        #expect(!sandbox.log.contains("localhost port 80"))
    }

    @Test(
        "an operator's socket that nginx's workers cannot open is reported",
        .enabled(if: geteuid() == 0, "nginx's workers run as another user only under root")
    )
    func adminSocket() throws {
        let sandbox = try Sandbox(front: .nginxWithAdmin)
        try check(sandbox).expect("admin", "ok", ["admin.sock", "may connect"])
        chmod(sandbox.directory.path() + "/admin.sock", 0o660)
        #expect(try sandbox.ask("GET", "/-/spoolgate/live").status == 502)
        let report = try check(sandbox)
        #expect(report.status == 69)
        report.expect(
            "admin",
            "fail",
            ["may not connect to", "the status page and the metrics return 502", "SocketGroup="]
        )
        report.expect("socket", "ok")
        try check(Sandbox()).expect("admin", "skip", ["nginx has no location for the status page"])
    }

    @Test("an nginx that refuses its configuration fails the check, with nginx's message")
    func refusedConfiguration() throws {
        let sandbox = try Sandbox(front: .nginxWithAdmin)
        let file = sandbox.directory.path() + "/nginx/nginx.conf"
        let text = try String(contentsOfFile: file, encoding: .utf8)
        try (text + "\nunheard_of on;\n").write(toFile: file, atomically: true, encoding: .utf8)
        let report = try check(sandbox)
        #expect(report.status == 69)
        report.expect("nginx", "fail", ["unknown directive", "unheard_of"])
    }

    @Test("a route that refuses clients without an owner, and an nginx that passes none")
    func noOwner() throws {
        let report = try check(Sandbox(routeSettings: ["anonymous: refuse"]))
        #expect(report.status == 69)
        report.expect("login", "fail", ["passes no SPOOLGATE_OWNER", "every upload gets 403"])
    }

    @Test("an upstream that leads back to the gateway is named, and the gateway responds 508")
    func loop() throws {
        let port = try FreePort.take(1)[0]
        let sandbox = try Sandbox(
            upstream: "http://127.0.0.1:\(port)",
            front: .nginx,
            port: port
        )
        let report = try check(sandbox)
        #expect(report.status == 69)
        report.expect(
            "upstream",
            "fail",
            ["default: http://127.0.0.1:\(port)", "location ^~ /files/", "back to the gateway"]
        )
        let put = try sandbox.ask("PUT", "/files/a", content: Data("hello".utf8))
        #expect(put.status == 508)
        let get = try sandbox.ask("GET", "/files/a")
        #expect(get.status == 508)
        let resource = try sandbox.create("/files/a")
        let response = try sandbox.append(resource, Data(repeating: 7, count: 200_000))
        #expect(response.status == 508)
        #expect(sandbox.log.contains("request loop detected"))
    }

    @Test("a route open to anyone and too little room are warnings; people get columns")
    func warnings() throws {
        let sandbox = try Sandbox(routeSettings: ["limits: {max-size: 1TiB}"], extra: [])
        let report = try check(sandbox)
        report.expect("login", "warn", ["no setting decides who may upload", "anonymous"])
        report.expect("spool", "warn", ["limits.max-size"])
        #expect(report.status == 1, "\(report.shown)")
        let shown = try sandbox.spoolgate("check", "--live")
        #expect(shown.output.contains(" warn  login       routes.default: "), "\(shown.output)")
        #expect(shown.status == 1)
        for arguments in [["check", "--json"], ["check", "--live", "--quiet"]] {
            #expect(try sandbox.spoolgate(arguments).status == 64)
        }
    }

    @Test(
        "as the service's user, a spool owned by root is named with its fix",
        .enabled(if: geteuid() == 0, "only root can check as another user")
    )
    func spoolOfRoot() throws {
        let sandbox = try Sandbox(routeSettings: ["anonymous: allow", "limits: {max-size: 1MiB}"])
        chmod(sandbox.directory.path(), 0o755)
        let report = try check(sandbox, ["--user", "nobody"])
        #expect(report.status == 69)
        let spool = "\(sandbox.directory.path())/spool"
        report.expect("settings", "fail", ["spool.directory", "chown nobody: \(spool)"])
    }
}
