// The operator's view of a real daemon, by the shipped nginx location, the command and the service manager.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("Operator requests")
struct AdminTests {
    private static let prefix = "/-/spoolgate/"

    @Test("through nginx, the pages are available only on this machine")
    func throughNginx() throws {
        let sandbox = try Sandbox(front: .nginxWithAdmin)
        #expect(try sandbox.ask("GET", Self.prefix + "live").text == "live\n")
        let ready = try sandbox.ask("GET", Self.prefix + "ready")
        #expect(ready.status == 200)
        #expect(ready.text.hasPrefix("{\"ready\":true,"))
        let page = try sandbox.ask("GET", Self.prefix)
        #expect(page.status == 200)
        #expect(page["content-security-policy"]?.contains("default-src 'none'") == true)
        #expect(page.text.contains("No uploads are being received."))
        #expect(
            try sandbox.ask("GET", Self.prefix + "style.css")["content-type"]?.hasPrefix("text/css")
                == true
        )
        #expect(try sandbox.ask("GET", Self.prefix + "nothing").status == 404)
        #expect(try sandbox.ask("POST", Self.prefix + "live", content: Data()).status == 405)
        // 127.0.0.2 acts as another machine.
        for (address, status) in [("127.0.0.1", "200"), ("127.0.0.2", "403")] {
            for name in ["", "live", "ready", "metrics", "status"] {
                let response = try sandbox.curl([
                    "--interface", address, "-o", "/dev/null", "-w", "%{http_code}",
                    "http://127.0.0.1:\(sandbox.port)\(Self.prefix)\(name)",
                ])
                #expect(response.output == status, "\(name) from \(address): \(response.errors)")
            }
        }
    }

    @Test(
        "the page in a browser updates, but not while text is selected",
        .enabled(if: Engine.chromium.isInstalled, Engine.chromium.missing)
    )
    func selection() throws {
        let sandbox = try Sandbox(front: .nginxWithAdmin)
        let browser = try Browser()
        try browser.open("http://127.0.0.1:\(sandbox.port)\(Self.prefix)")
        let shown = "return document.querySelector('main').textContent"
        let select = "getSelection().selectAllChildren(document.querySelector('main'))"
        _ = try sandbox.create("/files/first")
        try browser.run("return refresh()")
        #expect(try browser.text(shown).contains("1 partial upload is waiting"))
        try browser.run(select)
        let selected = try browser.text("return getSelection().toString()")
        #expect(!selected.isEmpty)
        _ = try sandbox.create("/files/second")
        for _ in 1...2 { try browser.run("return refresh()") }
        #expect(try browser.text("return getSelection().toString()") == selected)
        #expect(!(try browser.text(shown).contains("2 partial uploads")))
        #expect(try browser.text("return note.textContent").hasPrefix("Not refreshed"))
        try browser.run("getSelection().empty()")
        try eventually("the delayed update is shown") {
            try browser.text(shown).contains("2 partial uploads are waiting")
        }
        _ = try sandbox.create("/files/third")
        try eventually("the page refreshes by itself") {
            try browser.text(shown).contains("3 partial uploads are waiting")
        }
        #expect(try browser.console().isEmpty)
    }

    @Test("the shipped configuration has no such location")
    func asShipped() throws {
        #expect(try Sandbox().ask("GET", Self.prefix + "live").status == 404)
    }

    @Test("the metrics through nginx report an upload, and promtool accepts them")
    func metrics() throws {
        let sandbox = try Sandbox(
            routeSettings: ["limits: {min-size: 0}"],
            front: .nginxWithAdmin
        )
        let resource = try sandbox.create("/files/a")
        #expect(try sandbox.append(resource, Data("hello".utf8)).status == 201)
        let text = try sandbox.ask("GET", Self.prefix + "metrics").text
        for line in [
            "spoolgate_uploads_total{route=\"default\",dialect=\"ietf\",outcome=\"delivered\"} 1",
            "spoolgate_received_bytes_total{route=\"default\"} 5",
            "spoolgate_deliveries_total{route=\"default\",result=\"accepted\"} 1",
            "spoolgate_uploads{queue=\"delivered\",cause=\"\"} 1", "spoolgate_ready 1",
            "spoolgate_build_info{version=\"0.1.0\",build=\"unknown\"} 1",
        ] {
            #expect(text.contains("\n\(line)\n"), "\(line) is not in \(text)")
        }
        try Promtool.check("metrics", text)
    }

    @Test(
        "promtool accepts the shipped alerts",
        .enabled(if: Promtool.isInstalled, Promtool.missing)
    )
    func alerts() throws {
        let rules = Sandbox.root.appending(path: "deploy/prometheus/spoolgate.rules.yml").path()
        let said = try Command(Promtool.path, ["check", "rules", rules])
        #expect(said.status == 0, "\(said.output)\(said.errors)")
        #expect(said.output.contains("11 rules found"))
    }

    @Test(
        "the example Prometheus settings use https, and the alert texts fit any number",
        .enabled(if: Promtool.isInstalled, Promtool.missing)
    )
    func prometheus() throws {
        let rules = Sandbox.root.appending(path: "deploy/prometheus/spoolgate.rules.yml")
        let text = try String(contentsOf: rules, encoding: .utf8)
        let example = text.split(separator: "\n").prefix { $0.hasPrefix("#") }
            .filter { $0.hasPrefix("#     ") }.map { $0.dropFirst(6) }.joined(separator: "\n")
        #expect(example.contains("scheme: https\n"), "\(example)")
        let scratch = try ScratchDirectory()
        let shipped = "/usr/share/spoolgate/prometheus/spoolgate.rules.yml"
        try example.replacing(shipped, with: rules.path())
            .write(toFile: scratch.file("prometheus.yml"), atomically: true, encoding: .utf8)
        let said = try Command(Promtool.path, ["check", "config", scratch.file("prometheus.yml")])
        #expect(said.status == 0, "\(said.output)\(said.errors)")
        var tests = "rule_files: [\(rules.path())]\ntests:\n"
        for count in 1...2 {
            tests += """
                - interval: 1m
                  input_series:
                    - {series: 'spoolgate_uploads{instance="a",queue="hold",cause="failed"}', values: '\(count)x3'}
                    - {series: 'spoolgate_spool_full{instance="a",cause="reserve"}', values: '1x3'}
                  alert_rule_test:
                    - eval_time: 1m
                      alertname: SpoolgateNeedsAttention
                      exp_alerts:
                        - exp_labels: {instance: a, cause: failed, severity: warning}
                          exp_annotations:
                            summary: 'a: uploads that need an operator (failed): \(count)'
                            description: 'They are kept until an operator acts: run spoolgate list, then requeue or purge.'
                    - eval_time: 1m
                      alertname: SpoolgateSpoolFull
                      exp_alerts:
                        - exp_labels: {instance: a, cause: reserve, severity: critical}
                          exp_annotations:
                            summary: 'a: the spool is full (reserve), uploads are refused with 507'
                            description: 'Run spoolgate status to see how much space is free. Free some space; clients then resume by themselves.'

                """
        }
        try tests.write(toFile: scratch.file("tests.yml"), atomically: true, encoding: .utf8)
        let tested = try Command(Promtool.path, ["test", "rules", scratch.file("tests.yml")])
        #expect(tested.status == 0, "\(tested.output)\(tested.errors)")
    }

    @Test("with every thread busy, the operator still gets responses, and the daemon is not ready")
    func saturated() throws {
        let sandbox = try Sandbox(
            extra: [
                "threads: {maximum: 4}",
                "clients: {maximum-concurrent: 0}",
            ],
            front: .nginxWithAdmin
        )
        let clients = try (0..<4).map { number in
            let client = try sandbox.open("PUT", "/files/\(number)", length: 1_000)
            client.send(Data("begin".utf8))
            return client
        }
        try eventually("every thread is in use") {
            try sandbox.ask("GET", Self.prefix + "ready").status == 503
        }
        let ready = try sandbox.ask("GET", Self.prefix + "ready").text
        #expect(ready.contains("\"threads\":\"fail: all threads are in use (threads.maximum: 4)\""))
        #expect(try sandbox.ask("GET", Self.prefix + "live").status == 200)
        #expect(
            try sandbox.ask("GET", Self.prefix + "metrics").text
                .contains("\nspoolgate_threads_busy 4\n")
        )
        let check = try sandbox.spoolgate("status", "--check")
        #expect(check.status == 2)
        #expect(check.output.hasPrefix("CRITICAL: 4 receiving "))
        withExtendedLifetime(clients) {}
    }

    // MARK: The command

    @Test("status reports the daemon's condition as a screen, a line and JSON")
    func status() throws {
        let sandbox = try Sandbox()
        let screen = try sandbox.spoolgate("status")
        #expect(screen.status == 0)
        #expect(screen.output.hasPrefix("OK: 0 receiving, 0 waiting, 0 need attention, "))
        #expect(screen.output.split(separator: "\n").count <= 24)
        let check = try sandbox.spoolgate("status", "--check")
        #expect(check.status == 0)
        #expect(check.output.split(separator: "\n").count == 1)
        let json = try sandbox.spoolgate("status", "--json").output
        let object = try JSONSerialization.jsonObject(with: Data(json.utf8)) as? [String: Any]
        #expect(object?["v"] as? Int == 1)
        #expect(object?["level"] as? String == "OK")
        #expect(try sandbox.spoolgate("status", "--json", "--check").status == 64)
        let help = try sandbox.spoolgate("status", "--help").output
        #expect(help.contains("--config") && !help.contains("--spool"), "\(help)")
        #expect(try sandbox.spoolgate("status", "--spool", "/").status == 64)
    }

    @Test(
        "below the reserve uploads get 507, and status, its check, the page and the metrics say so"
    )
    func full() throws {
        let sandbox = try Sandbox(front: .nginxWithAdmin)
        try sandbox.reload(replacing: "reserve: 16MiB", with: "reserve: 1000TiB")
        let large = Data(repeating: 7, count: 200_000)
        #expect(try sandbox.ask("PUT", "/files/a", content: large).status == 507)
        let check = try sandbox.spoolgate("status", "--check")
        #expect(check.status == 2, "\(check.output)")
        let words = "uploads are refused with 507: "
        #expect(check.output.hasPrefix("CRITICAL: ") && check.output.contains(words))
        #expect(check.output.contains("spool full"))
        let screen = try sandbox.spoolgate("status").output
        #expect(
            screen.contains(words) && screen.contains("make room there, or lower spool.reserve")
        )
        #expect(try sandbox.ask("GET", Self.prefix).text.contains(words))
        let metrics = try sandbox.ask("GET", Self.prefix + "metrics").text
        #expect(metrics.contains("\nspoolgate_spool_full{cause=\"reserve\"} 1\n"))
        #expect(metrics.contains("\nspoolgate_spool_full{cause=\"quota\"} 0\n"))
        #expect(
            try sandbox.ask("GET", Self.prefix + "ready").status == 200,
            "requests that free space continue"
        )
        try sandbox.reload(replacing: "reserve: 1000TiB", with: "reserve: 16MiB")
        #expect(try sandbox.spoolgate("status", "--check").status == 0)
    }

    @Test("without a daemon, status says so and exits with 69, for Nagios 2")
    func noListener() throws {
        let sandbox = try Sandbox()
        sandbox.kill()
        let screen = try sandbox.spoolgate("status")
        #expect(screen.status == 69)
        let socket = sandbox.directory.path() + "/admin.sock"
        #expect(screen.errors.contains("no daemon listens on \(socket)"))
        let check = try sandbox.spoolgate("status", "--check")
        #expect(check.status == 2)
        #expect(check.output.hasPrefix("CRITICAL: no daemon listens on "))
        try sandbox.startAgain()
        try eventually("it responds again") { try sandbox.spoolgate("status").status == 0 }
    }

    @Test(
        "a user who may not use the socket is advised to use sudo",
        .enabled(if: geteuid() == 0, "only root can drop a capability")
    )
    func denied() throws {
        let sandbox = try Sandbox()
        let folder = sandbox.directory.appending(path: "closed")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: false)
        let socket = folder.appending(path: "admin.sock").path()
        try FileManager.default.createSymbolicLink(
            atPath: socket,
            withDestinationPath: sandbox.directory.path() + "/admin.sock"
        )
        // The socket is in another user's directory; setpriv(1) drops root's capabilities to pass it.
        #expect(chown(folder.path(), 65_534, 65_534) == 0 && chmod(folder.path(), 0o700) == 0)
        let said = try Command(
            "/usr/bin/setpriv",
            [
                "--bounding-set=-all", "--inh-caps=-all", Sandbox.program, "status", "--socket",
                socket,
            ]
        )
        #expect(said.status == 77, "\(said.output)")
        #expect(said.errors.contains(socket), "\(said.errors)")
        #expect(said.errors.hasSuffix("run the command as root: sudo spoolgate status\n"))
    }

    @Test("a refused reload is a warning until a reload succeeds")
    func reload() throws {
        let sandbox = try Sandbox()
        try sandbox.reload(replacing: "drain: 20s", with: "drain: nonsense")
        // The command finds the socket in invalid settings, too.
        #expect(try sandbox.spoolgate("status").status == 78)
        let socket = sandbox.directory.path() + "/admin.sock"
        let check = try sandbox.spoolgate("status", "--check", "--socket", socket)
        #expect(check.status == 1)
        #expect(check.output.contains("settings reload failed"))
        try sandbox.reload(replacing: "drain: nonsense", with: "drain: 20s")
        #expect(try sandbox.spoolgate("status", "--check").status == 0)
    }

    @Test("if the socket cannot be created, uploads continue and the log says so")
    func noSocket() throws {
        let sandbox = try Sandbox(extra: ["admin-listen: unix:/proc/none/admin.sock"])
        #expect(try sandbox.ask("PUT", "/files/a", content: Data("hello".utf8)).status == 201)
        #expect(sandbox.log.contains("msg=\"admin socket unavailable\""))
        #expect(try sandbox.spoolgate("status").status == 69)
    }

    @Test("a manual purge counts as a purge only if it removes all expired uploads")
    func purged() throws {
        let sandbox = try Sandbox()
        let note = sandbox.directory.path() + "/spool/purged"
        try eventually("the daemon has purged") { FileManager.default.fileExists(atPath: note) }
        sandbox.kill()
        try FileManager.default.removeItem(atPath: note)
        for some in [["--dry-run"], ["--queue", "incoming"], ["--older-than", "1d"]] {
            #expect(try sandbox.spoolgate(["purge"] + some).status == 0)
            #expect(!FileManager.default.fileExists(atPath: note), "\(some)")
        }
        #expect(try sandbox.spoolgate("purge").status == 0)
        #expect(FileManager.default.fileExists(atPath: note))
    }

    @Test("a manual purge appears in the daemon's status at once")
    func purgedPartial() throws {
        let sandbox = try Sandbox()
        let resource = try sandbox.create("/files/a")
        _ = try sandbox.append(resource, Data(count: 100_000), complete: false)
        func status() throws -> String { try sandbox.spoolgate("status").output }
        try eventually("the upload waits for its client") {
            try status().contains("1 partial upload is waiting for its client")
        }
        #expect(try sandbox.spoolgate("purge", "--force", "--older-than", "0s").status == 0)
        try eventually("the spool is empty") { try !status().contains("partial") }
    }

    // MARK: The service manager

    @Test("the service manager receives a status line and watchdog signals")
    func serviceManager() throws {
        let manager = try NotifySocket()
        let sandbox = try Sandbox(
            launcher: [
                Command.find("sh") ?? "sh", "-c",
                "export NOTIFY_SOCKET=\(manager.path) WATCHDOG_USEC=2000000 && exec \"$0\" \"$@\"",
            ]
        )
        try manager.waitFor { $0 == "READY=1" }
        try manager.waitFor { $0.hasPrefix("STATUS=0 receiving, 0 waiting, 0 need attention, ") }
        for _ in 0..<3 { try manager.waitFor { $0 == "WATCHDOG=1" } }
        let client = try sandbox.open("PUT", "/files/a", length: 1_000)
        client.send(Data("begin".utf8))
        try manager.waitFor { $0.hasPrefix("STATUS=1 receiving ") }
        client.cut()
        try manager.waitFor { $0.hasPrefix("STATUS=0 receiving, ") }
        sandbox.daemon.signal(SIGTERM)
        try manager.waitFor { $0 == "STOPPING=1" }
        #expect(sandbox.daemon.wait() == 0)
    }

    @Test("a watchdog of another process receives nothing")
    func othersWatchdog() throws {
        let manager = try NotifySocket()
        let sandbox = try Sandbox(
            launcher: [
                Command.find("sh") ?? "sh", "-c",
                "export NOTIFY_SOCKET=\(manager.path) WATCHDOG_USEC=2000000 WATCHDOG_PID=1 "
                    + "&& exec \"$0\" \"$@\"",
            ]
        )
        try manager.waitFor { $0.hasPrefix("STATUS=") }
        let client = try sandbox.open("PUT", "/files/a", length: 1_000)
        client.send(Data("begin".utf8))
        try manager.waitFor { $0.hasPrefix("STATUS=1 ") }
        #expect(!manager.heard.contains("WATCHDOG=1"))
    }
}

enum Promtool {
    static let isInstalled = Command.find("promtool") != nil
    static let missing: Comment = "promtool is not installed: apt-get install prometheus"
    static var path: String { Command.find("promtool") ?? "promtool" }

    /// Runs promtool's check on a text, if it is installed.
    static func check(_ kind: String, _ text: String) throws {
        guard isInstalled else { return }
        let file = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
        try text.write(to: file, atomically: true, encoding: .utf8)
        defer { try? FileManager.default.removeItem(at: file) }
        let said = try Command(
            Command.find("sh") ?? "sh",
            ["-c", "\"$0\" check \(kind) <\"$1\"", path, file.path()]
        )
        #expect(said.status == 0, "\(said.output)\(said.errors)")
    }
}

/// The service manager's end of sd_notify(3).
final class NotifySocket {
    let path: String
    private let number: Int32
    private(set) var heard: [String] = []

    init() throws {
        path = "/tmp/notify-\(UUID().uuidString.prefix(13)).sock"
        number = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let size = socklen_t(MemoryLayout<sockaddr_un>.size)
        let status = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(number, $0, size) }
        }
        guard status == 0 else { throw NeverHappened(description: "bind \(path): \(errno)") }
        var limit = timeval(tv_sec: 1, tv_usec: 0)
        setsockopt(number, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
    }

    deinit {
        close(number)
        unlink(path)
    }

    func waitFor(_ isMeant: (String) -> Bool) throws {
        try eventually("the service manager receives it; it has \(heard)") {
            var buffer = [UInt8](repeating: 0, count: 4_096)
            let count = recv(number, &buffer, buffer.count, 0)
            guard count > 0 else { return false }
            let lines = String(decoding: buffer[..<count], as: UTF8.self)
                .split(separator: "\n").map(String.init)
            heard += lines
            return lines.contains(where: isMeant)
        }
    }
}
