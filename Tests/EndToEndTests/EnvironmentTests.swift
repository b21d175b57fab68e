// Settings from the environment, as in a container, with and without a file.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("Settings from the environment, for each command")
struct EnvironmentTests {
    /// Kubernetes' variables for a service named spoolgate, and an unknown one.
    private static let others = [
        "SPOOLGATE_SERVICE_HOST": "10.0.0.1", "SPOOLGATE_PORT": "tcp://10.0.0.1:9000",
        "SPOOLGATE_MAX_SIZES": "?",
    ]

    @Test("a variable overrides the file, also after a reload, and is logged once")
    func winsOverFile() throws {
        let variables = Self.others.merging(["SPOOLGATE_MAX_SIZE": "1MiB"]) { $1 }
        let sandbox = try Sandbox(
            routeSettings: ["limits: {max-size: 8MiB}"],
            launcher: ["/usr/bin/env"] + variables.map { "\($0.key)=\($0.value)" }
        )
        func status(_ length: Int) throws -> Int {
            let fields = ["Upload-Complete: ?0", "Upload-Length: \(length)"]
            return try sandbox.ask("POST", "/files/a", fields, content: Data()).status
        }
        #expect(try status(1 << 20) == 201)
        #expect(try status(2 << 20) == 413)
        try sandbox.reload(replacing: "max-size: 8MiB", with: "max-size: 16MiB")
        #expect(try status(2 << 20) == 413)
        let told = sandbox.log.components(separatedBy: "settings read from environment")
        #expect(
            told.count == 2 && told[1].hasPrefix("\" variables=SPOOLGATE_MAX_SIZE\n"),
            "\(told)"
        )

        let check = ["check", "--config", sandbox.settingsFile]
        let said = try Command(Sandbox.program, check, environment: variables)
        #expect(said.status == 0, "\(said.errors)")
        let lines = said.output.split(separator: "\n")
        #expect(
            lines.dropFirst().first
                == "from the environment: SPOOLGATE_MAX_SIZE (routes.default.limits.max-size)"
        )
        #expect(lines.contains("  routes.default.limits.max-size: 1MiB"))
        let wrong = try Command(
            Sandbox.program,
            check,
            environment: ["SPOOLGATE_MAX_SIZE": "much"]
        )
        #expect(wrong.status == 78)
        let fault =
            "spoolgate: SPOOLGATE_MAX_SIZE: routes.default.limits.max-size: 'much' is not a size"
        #expect(wrong.errors.hasPrefix(fault), "\(wrong.errors)")
    }

    @Test("the command line overrides a variable, which is then not reported as used")
    func optionWins() throws {
        let sandbox = try Sandbox()
        let said = try Command(
            Sandbox.program,
            [
                "check", "--config", sandbox.settingsFile, "--spool",
                sandbox.directory.path() + "/spool",
            ],
            environment: ["SPOOLGATE_SPOOL_DIRECTORY": "/nowhere", "SPOOLGATE_SPOOL_QUOTA": "9GiB"]
        )
        #expect(said.status == 0, "\(said.errors)")
        #expect(
            said.output.contains("\nfrom the environment: SPOOLGATE_SPOOL_QUOTA (spool.quota)\n")
        )
    }

    @Test(
        "the environment is enough without a file, and other commands find the same daemon and spool",
        .enabled(
            if: !FileManager.default.fileExists(atPath: "/etc/spoolgate/spoolgate.yaml"),
            "this machine has its own settings"
        )
    )
    func alone() throws {
        let scratch = try ScratchDirectory()
        let root = scratch.path
        try FileManager.default.createDirectory(
            atPath: root + "/delivered",
            withIntermediateDirectories: true
        )
        let variables = Self.others.merging([
            "SPOOLGATE_LISTEN": "unix:\(root)/s.sock",
            "SPOOLGATE_SPOOL_DIRECTORY": "\(root)/spool",
            "SPOOLGATE_ADMIN_LISTEN": "unix:\(root)/a.sock",
            "SPOOLGATE_UPSTREAM": "directory:\(root)/delivered",
        ]) { $1 }
        func run(_ arguments: String..., without name: String = "") throws -> Command {
            try Command(
                Sandbox.program,
                arguments,
                environment: variables.filter { $0.key != name }
            )
        }
        let lacking = try run("serve", without: "SPOOLGATE_UPSTREAM")
        #expect(lacking.status == 78)
        #expect(
            lacking.errors.hasPrefix("spoolgate: environment: routes.default.upstream: not set; "),
            "\(lacking.errors)"
        )
        let checked = try run("check")
        #expect(checked.status == 0 && checked.output.hasPrefix("environment: ok\n"), "\(checked)")
        let log = URL(filePath: root + "/log")
        let daemon = try Daemon(Sandbox.program, ["serve"], log: log, environment: variables)
        try eventually("the daemon listens") { UnixSocket.accepts(root + "/a.sock") }
        let status = try run("status")
        #expect(status.status == 0 && status.output.hasPrefix("OK: "), "\(status)")
        #expect(try run("status", without: "SPOOLGATE_ADMIN_LISTEN").errors.contains("/admin.sock"))
        let listed = try run("list", "--json")
        #expect(listed.status == 0, "\(listed.errors)")
        let purged = try run("purge", "--dry-run")
        #expect(purged.status == 0, "\(purged.errors)")
        daemon.signal(SIGTERM)
        #expect(daemon.wait() == 0)
    }
}
