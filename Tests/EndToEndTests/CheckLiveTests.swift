// `check --live` beside a daemon behind a real nginx.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("check --live", .enabled(if: Command.find("nginx") != nil, "nginx is not installed"))
struct CheckLiveTests {
    private func check(_ sandbox: Sandbox, _ arguments: [String] = []) throws -> ProbeTests.Report {
        try .init(sandbox.spoolgate(["check", "--live", "--json"] + arguments))
    }

    @Test("what runs is well, and what is stopped is named")
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
            "settings", "login", "socket", "nginx", "spool", "upstream", "authorizer", "inspect",
        ] {
            report.expect(name, "ok")
        }
        #expect(!report.complaints.contains { $0.hasPrefix("fail") }, "\(report.shown)")
        #expect(origin.requests.isEmpty && authorizer.requests.isEmpty, "nothing is sent")
        report.expect("receive", "ok", ["slow: not in use: the route has spool-receive: off"])
        if NginxConfiguration.hasLane {
            report.expect("receive", "skip", ["default: no large content was seen"])
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
        broken.expect("socket", "fail", ["nobody listens", "systemctl start"])
        if NginxConfiguration.hasLane {
            broken.expect("receive", "skip", ["default: no daemon was reached"])
        }
    }

    @Test("a location that takes files from the gateway is named with the line that mends it")
    func rivals() throws {
        let sandbox = try Sandbox(front: .nginxMistaken(.otherLocations))
        let report = try check(sandbox)
        #expect(report.status == 69)
        report.expect(
            "nginx",
            "fail",
            [
                #"location ~ \.php$ at "#, "takes /files/x.php from location /files/",
                "takes /files/x.jpg", "location ^~ /files/ {   (in place of location /files/ { at ",
            ]
        )
        let right = try check(Sandbox(front: .nginxMistaken(.locationsBeside)))
        right.expect("nginx", "ok", ["location takes names from ^~ /files/"])
    }

    @Test("an upstream that leads back to the gateway is named, and answers 508")
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
        let answer = try sandbox.append(resource, Data(repeating: 7, count: 200_000))
        #expect(answer.status == 508)
        #expect(sandbox.log.contains("request came back"))
    }

    @Test("a route that anybody may use, and too little room, are warnings; people get columns")
    func warnings() throws {
        let sandbox = try Sandbox(routeSettings: ["limits: {max-size: 1TiB}"], extra: [])
        let report = try check(sandbox)
        report.expect("login", "warn", ["nothing here decides who may upload", "anonymous"])
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
        "as the service's user, a spool of root's is named with what mends it",
        .enabled(if: geteuid() == 0, "only root can judge as another user")
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
