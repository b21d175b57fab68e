// Commands that root runs while the daemon's user has filled its directories with traps.
//
// Invariant: nothing outside the daemon's directories changes in content, owner or mode, and no command hangs.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

@Suite("hostile directories", .enabled(if: geteuid() == 0, "only root can be misused"))
struct HostileDirectoryTests {
    private static let owner: uid_t = 65_534

    private final class Stage {
        let root = "/tmp/spoolgate-hostile-\(UUID().uuidString)"
        /// What the daemon's user owns.
        var own: String { "\(root)/own" }
        var spool: String { "\(own)/spool" }
        /// What root owns.
        var secret: String { "\(root)/secret" }
        let id = UploadID.random()

        init() throws {
            let files = FileManager.default
            for path in ["own", "secret"] {
                try files.createDirectory(
                    atPath: "\(root)/\(path)",
                    withIntermediateDirectories: true
                )
            }
            try Data("root's".utf8).write(to: URL(filePath: "\(secret)/file"))
            try #require(chmod("\(secret)/file", 0o600) == 0)
            try #require(chmod(secret, 0o755) == 0 && chmod(root, 0o755) == 0)
            let spool = try Spool(directory: "\(root)/own/spool")
            var creation = UploadCreation(
                id: id,
                route: "default",
                head: RequestHead(method: .put, target: "/files", contentLength: .known(5)),
                created: .now
            )
            creation.resourcePath = "/files/upload-resource/\(id)"
            creation.isRepeatable = true
            let upload = try spool.create(creation, requestRelease: {})
            try upload.append(Array("hello".utf8).span.bytes)
            try upload.postpone(reason: "a test", .queue(WallTime(seconds: 1 << 40)))
            try upload.sync()
            upload.unlock()
            spool.leave()
            try Data(
                """
                listen: unix:\(root)/own/gate.sock
                admin-listen: unix:\(root)/own/admin.sock
                spool: {directory: \(root)/own/spool}
                events: {to: \(root)/own/events.log}
                routes: {default: {upstream: "http://127.0.0.1:9", anonymous: allow}}
                """.utf8
            ).write(to: URL(filePath: "\(root)/spoolgate.yaml"))
            // Last, so that traps may replace anything.
            _ = try Command(
                "/bin/chown",
                ["-R", "\(HostileDirectoryTests.owner):\(HostileDirectoryTests.owner)", own]
            )
        }

        deinit { try? FileManager.default.removeItem(atPath: root) }

        /// As the daemon's user would.
        func sh(_ script: String) throws {
            let done = try Command(
                "/usr/bin/setpriv",
                [
                    "--reuid=\(HostileDirectoryTests.owner)",
                    "--regid=\(HostileDirectoryTests.owner)", "--clear-groups", "sh", "-ec",
                    "cd \(own); \(script)",
                ]
            )
            try #require(done.status == 0, "\(done.errors)")
        }

        /// Everything that root owns: names, owners, modes, times and contents.
        func snapshot() throws -> String {
            let said = try Command(
                "/bin/sh",
                [
                    "-c",
                    "cd \(secret) && find . -printf '%p %u %g %m %s %T@ %l\\n' | sort && cat file && "
                        + "stat -c '%n %u %g %a' \(root) \(root)/spoolgate.yaml /dev/zero /dev/null /etc/passwd",
                ]
            )
            return said.output
        }
    }

    static let traps: [(name: String, script: String)] = [
        ("no trap", ":"),
        ("events to a file of root", "ln -s ../secret/file events.log"),
        ("events to a missing file of root", "ln -s ../secret/new events.log"),
        ("events to a device", "ln -s /dev/full events.log"),
        ("events to a FIFO", "mkfifo events.log"),
        ("events to a directory", "mkdir events.log"),
        (
            "event queue to a directory of root",
            "rm -rf spool/events; ln -s ../../secret spool/events"
        ),
        (
            "event queue's file to a file of root",
            "mkdir -p spool/events; ln -sf ../../../secret/file spool/events/pending"
        ),
        ("queue to a directory of root", "rm -rf spool/queue; ln -s ../../secret spool/queue"),
        ("format to a file of root", "ln -sf ../../secret/file spool/format"),
        ("format is a FIFO", "rm spool/format; mkfifo spool/format"),
        ("format is huge", "truncate -s 1T spool/format"),
        (
            "records to a file of root",
            "for f in $(find spool/uploads -type f); do ln -sf ../../../../secret/file $f; done"
        ),
        (
            "records are FIFOs",
            "for f in $(find spool/uploads -type f); do rm $f; mkfifo $f; done"
        ),
        (
            "records are huge",
            "for f in $(find spool/uploads -type f); do truncate -s 1T $f; done"
        ),
        (
            "files of the spool to a file of root",
            "for f in $(find spool -maxdepth 1 -type f); do ln -sf ../../secret/file $f; done"
        ),
        (
            "temporary files in a directory of root",
            "rm -rf spool/tmp; ln -s ../../secret spool/tmp"
        ),
        ("spool to a directory of root", "mv spool old; ln -s ../secret spool"),
        ("socket is a FIFO", "rm -f admin.sock; mkfifo admin.sock"),
        (
            "socket to a file of root",
            "ln -sf ../secret/file admin.sock; ln -sf ../secret/file gate.sock"
        ),
    ]

    static let commands: [[String]] = [
        ["list", "--json"], ["show", "ID"], ["hold", "ID"], ["release", "ID"], ["requeue", "ID"],
        ["requeue", "--all"], ["purge", "--force", "ID"],
        ["purge", "--force", "--older-than", "0s"], ["check"], ["check", "--live"], ["status"],
        ["status", "--check"], ["serve"],
    ]

    // Long because after each trap every command runs in its own directory.
    @Test(
        "no command of root follows the daemon's user",
        arguments: Portion.ofThisRun.taken(from: traps.map(\.name), of: 3)
    )
    func walk(trap: String) throws {
        let script = try #require(Self.traps.first { $0.name == trap }).script
        for command in Self.commands {
            let stage = try Stage()
            try stage.sh(script)
            let before = try stage.snapshot()
            let arguments = command.map { $0 == "ID" ? "\(stage.id)" : $0 }
            let done = try Command(
                "/usr/bin/timeout",
                [
                    "-k", "5", command == ["serve"] ? "3" : "60", Sandbox.program, arguments[0],
                    "--config", "\(stage.root)/spoolgate.yaml",
                ] + arguments.dropFirst()
            )
            #expect(try stage.snapshot() == before, "\(command): \(done)")
            #expect(command == ["serve"] || done.status != 124, "\(command) hung")
            // A trap never makes a file of root's in the daemon's directories either.
            let foreign = try Command("/usr/bin/find", [stage.own, "-uid", "0"])
            #expect(foreign.output.isEmpty, "\(command): \(foreign.output)")
            // Others need a daemon, or an upload on hold.
            let isPlain = ["list", "show", "hold"].contains(command[0]) || command.last == "--all"
            if trap == "no trap", isPlain {
                #expect(done.status == 0, "\(command): \(done)")
            }
        }
    }

    @Test("root's own spool is refused if another user can replace it")
    func replaceable() throws {
        let stage = try Stage()
        _ = try Command("/bin/chown", ["-R", "0:0", stage.spool])
        let done = try Command(
            Sandbox.program,
            ["list", "--config", "\(stage.root)/spoolgate.yaml"]
        )
        #expect(done.status == 77)
        #expect(done.errors.contains("lets other users replace it"), "\(done.errors)")
    }
}
