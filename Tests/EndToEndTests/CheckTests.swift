// `check`: missing settings, paths that the daemon's user cannot use, and routes open to anyone.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("check")
struct CheckTests {
    /// The settings and all their paths, in a directory that all users may pass.
    private final class Stage {
        let root: String
        var file: String { "\(root)/spoolgate.yaml" }

        init(_ route: String = "upstream: http://127.0.0.1:3000, anonymous: allow") throws {
            root = FileManager.default.temporaryDirectory
                .appending(path: "check-\(UUID().uuidString.prefix(8))").path()
            try sh("mkdir -m 0755 '\(root)' && mkdir -m 0777 '\(root)/run'")
            try """
            listen: unix:\(root)/run/spoolgate.sock
            spool: {directory: "\(root)/over/spool", reserve: 1MiB}
            routes: {default: {\(route.replacing("ROOT", with: root))}}
            """.write(toFile: file, atomically: true, encoding: .utf8)
        }

        deinit { try? FileManager.default.removeItem(atPath: root) }

        @discardableResult
        func sh(_ script: String) throws -> Command {
            let command = try Command(
                "/bin/sh",
                ["-ec", "cd '\(root)' 2>/dev/null || cd /; \(script)"]
            )
            guard command.status == 0 else { throw WireClient.Broken(description: command.errors) }
            return command
        }

        func check(_ arguments: String...) throws -> Command {
            try Command(Sandbox.program, ["check", "--config", file] + arguments)
        }
    }

    // MARK: As another user

    struct Trouble: Sendable, CustomTestStringConvertible {
        var testDescription: String
        /// The commands that cause it, run in the stage's directory.
        var script: String
        /// The message; `ROOT` stands for that directory.
        var fault: String
        var route = "upstream: http://127.0.0.1:3000, anonymous: allow"
    }

    private static let owned =
        "mkdir over && mkdir -m 0700 over/spool && chown nobody: over/spool; "

    static let troubles = [
        Trouble(
            testDescription: "the spool is root's",
            script: "mkdir over && mkdir -m 0755 over/spool",
            fault:
                "spool.directory: user nobody cannot write to ROOT/over/spool (owner root, group "
                + "root, mode 0755); chown nobody: ROOT/over/spool"
        ),
        Trouble(
            testDescription: "the spool is root's and everybody may write to it",
            script: "mkdir over && mkdir over/spool && chmod 0777 over/spool",
            fault:
                "spool.directory: ROOT/over/spool does not belong to user nobody (owner root, group root, "
                + "mode 0777); chown nobody: ROOT/over/spool"
        ),
        Trouble(
            testDescription: "the user took its own rights away",
            script: owned + "chmod 0500 over/spool",
            fault:
                "spool.directory: user nobody cannot write to ROOT/over/spool (owner nobody, group "
                + "nogroup, mode 0500); chmod u+w ROOT/over/spool"
        ),
        Trouble(
            testDescription: "a directory above cannot be passed",
            script: owned + "chmod 0700 over",
            fault:
                "spool.directory: user nobody cannot reach ROOT/over/spool: no search permission on "
                + "ROOT/over (owner root, group root, mode 0700); setfacl -m u:nobody:x ROOT/over, or, "
                + "for all users, chmod o+x ROOT/over"
        ),
        Trouble(
            testDescription: "the spool is not there and its parent is root's",
            script: "mkdir over",
            fault:
                "spool.directory: ROOT/over/spool does not exist, and user nobody cannot create it in "
                + "ROOT/over (owner root, group root, mode 0755); install -d -o nobody -g nogroup -m "
                + "0700 ROOT/over/spool"
        ),
        Trouble(
            testDescription: "not even the parent is there",
            script: "true",
            fault:
                "spool.directory: ROOT/over does not exist (needed for ROOT/over/spool); install -d "
                + "-o nobody -g nogroup -m 0700 ROOT/over/spool"
        ),
        Trouble(
            testDescription: "a directory in the spool is root's",
            script: owned + "touch over/spool/format && chown nobody: over/spool/format "
                + "&& mkdir -m 0700 over/spool/uploads",
            fault:
                "spool.directory: ROOT/over/spool/uploads does not belong to user nobody (owner root, "
                + "group root, mode 0700); chown -R nobody: ROOT/over/spool"
        ),
        Trouble(
            testDescription: "a key is root's alone",
            script: owned + "echo key > key.pem && chmod 0600 key.pem",
            fault:
                "routes.default.tls.key: user nobody cannot read ROOT/key.pem (owner root, group "
                + "root, mode 0600); chgrp nogroup ROOT/key.pem && chmod g+r ROOT/key.pem",
            route: "upstream: https://a.example, anonymous: allow, tls: {key: ROOT/key.pem}"
        ),
        Trouble(
            testDescription: "a directory for uploads is not there, and has a space in its name",
            script: owned,
            fault: "routes.default.upstream: ROOT/in coming does not exist; install -d -o nobody "
                + "-g nogroup -m 2770 'ROOT/in coming'",
            route: "upstream: \"directory:ROOT/in coming\", anonymous: allow"
        ),
        Trouble(
            testDescription: "a program cannot be run",
            script: owned + "touch look && chmod 0644 look",
            fault:
                "routes.default.inspect.command: user nobody cannot run ROOT/look (owner root, group "
                + "root, mode 0644); chmod a+x ROOT/look",
            route: "upstream: http://a.example, anonymous: allow, inspect: {command: ROOT/look}"
        ),
        Trouble(
            testDescription: "the settings are root's alone",
            script: owned + "chmod 0600 spoolgate.yaml",
            fault:
                "cannot read the settings: user nobody cannot read ROOT/spoolgate.yaml (owner root, "
                + "group root, mode 0600); chgrp nogroup ROOT/spoolgate.yaml && chmod g+r "
                + "ROOT/spoolgate.yaml"
        ),
    ]

    @Test(
        "a path that another user cannot use is named, with commands that fix it",
        .enabled(if: geteuid() == 0, "only root can check as another user"),
        arguments: troubles
    )
    func judged(trouble: Trouble) throws {
        let stage = try Stage(trouble.route)
        try stage.sh(trouble.script)
        let found = try stage.check("--user", "nobody", "--quiet")
        let fault = trouble.fault.replacing("ROOT", with: stage.root)
        #expect(found.status == 78)
        #expect(found.output.isEmpty)
        #expect(found.errors == "spoolgate: \(fault)\n")
        let fix = try #require(fault.split(separator: "; ").last).split(
            separator: ", or, for all users, "
        )
        try stage.sh(String(try #require(fix.last)))
        let fixed = try stage.check("--user", "nobody", "--quiet")
        // In one case root still owns the parent, and the next check reports another fault.
        #expect(fixed.errors.replacing(fault, with: "again") == fixed.errors)
        #expect(fixed.status == 0 || fixed.errors.contains("format"), "\(fixed.errors)")
    }

    @Test(
        "only the settings of sockets that the service manager does not create are checked",
        .enabled(if: geteuid() == 0, "only root can check as another user")
    )
    func serviceManagersSocket() throws {
        let stage = try Stage()
        try stage.sh(
            Self.owned + "printf '\\nsocket-group: daemon\\n' >> spoolgate.yaml; rmdir run"
        )
        let judged = try stage.check("--user", "nobody", "--quiet")
        #expect(judged.status == 78)
        #expect(judged.errors.contains("listen: \(stage.root)/run does not exist"))
        #expect(judged.errors.contains("usermod -aG daemon nobody"))
        #expect(try stage.check("--user", "nobody", "--listen", "systemd").status == 0)
    }

    @Test("the bucket's key file is read, and an invalid one is named with its fault")
    func bucketKey() throws {
        let stage = try Stage(
            "upstream: \"s3:https://a.example/drop\", anonymous: allow, s3: {credentials: ROOT/key}"
        )
        try stage.sh("mkdir over")
        let steps = [
            ("true", "ROOT/key does not exist; create it, or correct the path in the settings"),
            (
                "printf 'id\\nsecret\\n' > key && chmod 0644 key",
                "ROOT/key is readable by others, writable by its group, or not a regular file; set its "
                    + "mode to 0600 or 0640"
            ),
            ("echo secret > key && chmod 0600 key", "ROOT/key has 1 line; it must have two"),
        ]
        for (script, fault) in steps {
            try stage.sh(script)
            let found = try stage.check("--quiet")
            #expect(found.status == 78)
            let whole =
                "spoolgate: routes.default.s3.credentials: "
                + fault.replacing("ROOT", with: stage.root)
            #expect(found.errors.hasPrefix(whole), "\(found.errors)")
            #expect(!found.errors.contains("secret "))
        }
        try stage.sh("printf 'id\\nsecret\\n' > key")
        let taken = try stage.check("--quiet")
        #expect(taken.status == 0, "\(taken.errors)")
    }

    @Test("the first start may create the event file, but its directory must exist")
    func eventFile() throws {
        let stage = try Stage()
        try stage.sh(
            "mkdir over; printf '\\nevents: {to: %s/log/events.json}\\n' $PWD >> spoolgate.yaml"
        )
        let found = try stage.check("--user", "root", "--quiet")
        #expect(
            found.errors.hasPrefix(
                "spoolgate: events.to: \(stage.root)/log does not exist; install -d"
            )
        )
        try stage.sh("mkdir log")
        #expect(try stage.check("--user", "root", "--quiet").status == 0)
    }

    @Test(
        "a group-only socket names the group that the user lacks; a missing socket is no finding",
        .enabled(if: geteuid() == 0, "only root can check as another user")
    )
    func socket() throws {
        let stage = try Stage("upstream: \"unix:ROOT/app.sock\", anonymous: allow")
        try stage.sh(Self.owned)
        #expect(try stage.check("--user", "nobody").status == 0)
        let origin = try LoopbackOrigin(socketPath: "\(stage.root)/app.sock")
        try stage.sh("chgrp daemon app.sock && chmod 0660 app.sock")
        let found = try stage.check("--user", "nobody", "-q")
        #expect(
            found.errors == "spoolgate: routes.default.upstream: user nobody cannot connect to "
                + "\(stage.root)/app.sock (owner root, group daemon, mode 0660); usermod -aG daemon "
                + "nobody, then restart spoolgate\n"
        )
        #expect(origin.connectionCount == 0)
    }

    @Test(
        "root checks the system's settings as the service's user, unless told to check as itself",
        .enabled(
            if: geteuid() == 0 && Command.find("unshare") != nil,
            "only root can put another /etc in place"
        )
    )
    func service() throws {
        let stage = try Stage()
        try stage.sh(
            "mkdir over && mkdir -m 0700 over/spool && mkdir -p etc/spoolgate && "
                + "cp /etc/passwd /etc/group /etc/nsswitch.conf /etc/ld.so.cache etc/ && "
                + "cp spoolgate.yaml etc/spoolgate/ && "
                + "echo 'spoolgate:x:4242:4242::/:/bin/false' >> etc/passwd && "
                + "echo 'spoolgate:x:4242:' >> etc/group"
        )
        func check(_ arguments: String) throws -> Command {
            try Command(
                Command.find("unshare") ?? "unshare",
                [
                    "-m", "sh", "-c",
                    "mount --bind '\(stage.root)/etc' /etc && exec \(Sandbox.program) check \(arguments)",
                ]
            )
        }
        let asService = try check("-q")
        #expect(asService.status == 78)
        #expect(
            asService.errors == "spoolgate: spool.directory: user spoolgate cannot write to "
                + "\(stage.root)/over/spool (owner root, group root, mode 0700); chown spoolgate: "
                + "\(stage.root)/over/spool\n"
        )
        #expect(try check("--user root").status == 0)
        #expect(try check("--config '\(stage.file)'").status == 0)
        try stage.sh("chown 4242:4242 over/spool")
        let fixed = try check("")
        #expect(fixed.status == 0)
        #expect(fixed.output.hasPrefix("/etc/spoolgate/spoolgate.yaml: ok\n"))
    }

    @Test("a missing user and a user that root cannot become have their own exit codes")
    func wrongUser() throws {
        let stage = try Stage()
        try stage.sh("mkdir over")
        let unknown = try stage.check("--user", "no such user")
        #expect(unknown.status == 67)
        #expect(unknown.errors.hasPrefix("spoolgate: --user no such user: unknown user; "))
        guard geteuid() == 0, let setpriv = Command.find("setpriv") else { return }
        try stage.sh("cp '\(Sandbox.program)' spoolgate && chmod 0755 spoolgate")
        let refused = try Command(
            setpriv,
            [
                "--reuid=nobody", "--clear-groups", "\(stage.root)/spoolgate", "check", "--config",
                stage.file, "--user", "root",
            ]
        )
        #expect(refused.status == 77)
        #expect(refused.errors.contains("only root can check as another user"))
    }

    // MARK: Missing settings

    @Test(
        "settings without an upstream are reported only if a request would need one"
    )
    func upstream() throws {
        let stage = try Stage("reply: accepted, anonymous: allow")
        try stage.sh("mkdir over")
        let sentence =
            "spoolgate: \(stage.file): routes.default.upstream: not set; set it to the "
            + "application that receives the uploads, for example upstream: "
            + "http://127.0.0.1:3000\n"
        let check = try stage.check()
        #expect((check.status, check.output) == (78, ""))
        let sum = "spoolgate: \(stage.file): the settings are not usable\n"
        #expect(check.errors == sentence + sum)
        let serve = try Command(Sandbox.program, ["serve", "--config", stage.file])
        #expect((serve.status, serve.errors) == (78, sentence))
        let daemon = try Daemon(
            Sandbox.program,
            ["serve", "--config", stage.file, "--upstream", "http://127.0.0.1:1"],
            log: URL(filePath: "\(stage.root)/log")
        )
        try eventually("it serves") { UnixSocket.accepts("\(stage.root)/run/spoolgate.sock") }
        for command in [["list"], ["purge", "--older-than", "1h"], ["requeue", "--all"]] {
            let done = try Command(Sandbox.program, command + ["--config", stage.file])
            #expect((done.status, done.errors) == (0, ""))
        }
        daemon.signal(SIGTERM)
        #expect(daemon.wait() == 0)
    }

    @Test("a removed setting is reported and does not prevent a start")
    func removedSetting() throws {
        let sandbox = try Sandbox(extra: ["threads: {maximum-waiting: 1}"])
        let check = try sandbox.spoolgate("check")
        #expect(check.status == 0)
        let words = "threads.maximum-waiting: this setting was removed and is ignored: "
        #expect(check.errors.contains(words), "\(check.errors)")
        #expect(sandbox.log.contains("msg=\"setting ignored\"") && sandbox.log.contains(words))
        try sandbox.reload(replacing: "maximum-waiting: 1}", with: "maximum-waiting: 2}")
        #expect(sandbox.log.matches(of: /msg="setting ignored"/).count == 2)
        #expect(sandbox.log.contains("settings reloaded"))
    }

    @Test("a reload of settings without an upstream changes nothing")
    func reload() throws {
        let sandbox = try Sandbox()
        try sandbox.reload(replacing: "    upstream: ", with: "    #")
        #expect(sandbox.log.contains("settings reload failed"))
        #expect(sandbox.log.contains("routes.default.upstream: not set; set it to the application"))
        let file = try sandbox.randomFile(10)
        let sent = try sandbox.curl([
            "-T", file.url.path(), "http://localhost:\(sandbox.port)/files/a.bin",
        ])
        #expect(sent.status == 0)
        #expect(try sandbox.delivered().count == 1)
    }

    // MARK: Routes open to anyone

    @Test(
        "a route without any authorization is a warning, not a fault",
        arguments: [
            ("", true), ("anonymous: allow", false), ("anonymous: refuse", false),
            ("authorize: {url: \"http://127.0.0.1:1/may\"}", false),
        ]
    )
    func openDoor(setting: String, isOpen: Bool) throws {
        let stage = try Stage(
            "upstream: http://127.0.0.1:3000, limits: {max-size: 3GiB}, \(setting)"
        )
        try stage.sh("mkdir over")
        let check = try stage.check()
        #expect(check.status == 0)
        #expect(check.output.hasPrefix("\(stage.file): ok\n"))
        #expect(check.errors.isEmpty != isOpen)
        if isOpen {
            #expect(
                check.errors.hasPrefix(
                    "spoolgate: warning: routes.default: no setting decides who may upload"
                )
            )
            for words in [
                "up to 3GiB each", "spool.quota is 0", "login", "anonymous: refuse",
                "authorize.url",
                "anonymous: allow",
            ] { #expect(check.errors.contains(words)) }
        }
        let quiet = try stage.check("-q")
        #expect((quiet.status, quiet.output, quiet.errors) == (0, "", ""))
    }
}
