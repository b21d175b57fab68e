// Restarts of the machine, and processes that see another boot of it, as in a container.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("Another boot of the machine")
struct BootTests {
    private let sandbox: Sandbox
    /// The program, with another boot identity than the kernel's.
    private let elsewhere: String

    /// Only root can hide the kernel's boot identity.
    private static let canHideBoot: Bool = {
        guard geteuid() == 0, let unshare = Command.find("unshare") else { return false }
        return
            (try? Command(unshare, ["--mount", "mount", "--bind", "/proc/version", bootID]).status)
            == 0
    }()
    private static let bootID = "/proc/sys/kernel/random/boot_id"

    init() throws {
        // No server listens there.
        let port = try FreePort.take(1)[0]
        sandbox = try Sandbox(
            upstream: "http://127.0.0.1:\(port)",
            routeSettings: ["promise: process", "queue: {minimum-backoff: 1h}"]
        )
        let identity = sandbox.directory.appending(path: "boot_id").path()
        try "11111111-2222-4333-8444-555555555555\n".write(
            toFile: identity,
            atomically: true,
            encoding: .utf8
        )
        elsewhere = sandbox.directory.appending(path: "elsewhere").path()
        try """
        #!/bin/sh
        exec unshare --mount sh -c 'mount --bind \(identity) \(Self.bootID) && exec "$0" "$@"' \
        \(Sandbox.program) "$@"

        """.write(toFile: elsewhere, atomically: true, encoding: .utf8)
        try FileManager.default.setAttributes(
            [.posixPermissions: 0o755],
            ofItemAtPath: elsewhere
        )
    }

    /// Partial and deferred uploads.
    private func makeUploads() throws -> [String] {
        try (0..<8).map { number in
            let resource = try sandbox.create("/files/\(number)")
            _ = try sandbox.append(resource, Data("content".utf8), complete: number % 2 == 0)
            return resource
        }
    }

    private func listed() throws -> [String] {
        let lines = try sandbox.spoolgate("list", "--json").output.split(separator: "\n")
        return try lines.map { line in
            let object = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
            return "\(object?["upload"] ?? "") \(object?["state"] ?? "") \(object?["offset"] ?? "")"
        }.sorted()
    }

    @Test(
        "an orderly restart of the machine loses no upload of promise: process",
        .enabled(if: canHideBoot)
    )
    func restart() throws {
        let resources = try makeUploads()
        let before = try listed()
        #expect(before.count == resources.count)
        sandbox.daemon.signal(SIGTERM)
        #expect(sandbox.daemon.wait() == 0)
        sandbox.build = elsewhere
        try sandbox.startAgain()
        try eventually("the spool is recovered") {
            sandbox.log.ranges(of: "spool recovered").count == 2
        }
        #expect(sandbox.log.contains("forgotten=0"))
        #expect(try listed() == before)
        #expect(try sandbox.offset(of: resources[1]) == 7)
    }

    @Test(
        "a command that sees another boot changes nothing, whether the daemon runs or has crashed",
        .enabled(if: canHideBoot)
    )
    func command() throws {
        let resources = try makeUploads()
        let before = try listed()
        let ids = resources.map { String($0.suffix(26)) }
        for isRunning in [true, false] {
            if !isRunning { sandbox.kill() }
            sandbox.build = elsewhere
            for arguments in [
                ["requeue", "--all"], ["hold"] + ids, ["release"] + ids, ["requeue"] + ids,
            ] {
                let refused = try sandbox.spoolgate(arguments)
                #expect(refused.status != 0 && refused.output.isEmpty, "\(arguments)")
                #expect(
                    refused.errors.contains(
                        isRunning ? "the running daemon sees the boot identity" : "left unchanged"
                    ),
                    "\(refused.errors)"
                )
            }
            let purge = try sandbox.spoolgate("purge")
            #expect((purge.status != 0) == isRunning, "\(purge.errors)")
            sandbox.build = Sandbox.program
            #expect(try listed() == before)
        }
        // The daemon's own view decides.
        try sandbox.startAgain()
        #expect(try listed() == before)
        #expect(try sandbox.spoolgate("requeue", "--all").status == 0)
    }

    @Test(
        "a daemon that sees another boot than a running one does not start",
        .enabled(if: canHideBoot)
    )
    func daemon() throws {
        _ = try makeUploads()
        let before = try listed()
        sandbox.build = elsewhere
        let second = try sandbox.spoolgate("serve")
        #expect(second.status != 0)
        #expect(second.errors.contains("the running daemon sees the boot identity"))
        sandbox.build = Sandbox.program
        #expect(try listed() == before)
    }
}
