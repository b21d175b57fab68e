// The recipe for a virus scanner in docs/RECIPES.md, with clamd and EICAR's signature.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite(
    "ClamAV",
    .enabled(
        if: Command.find("clamd") != nil && Command.find("clamdscan") != nil,
        "clamav-daemon and clamdscan are not installed"
    )
)
struct ClamRecipeTests {
    /// The test file, split so that no scanner reports this source.
    private static let virus = Data(
        (#"X5O!P%@AP[4\PZX54(P^)7CC)7}$"# + "EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*").utf8
    )

    private final class Scanner {
        let settings: String
        private let folder: ScratchDirectory
        private var daemon: Daemon?

        /// Writes its files with the page's settings, but a limit of 1 MiB.
        init() throws {
            folder = try ScratchDirectory()
            settings = folder.file("clamd.conf")
            try #require(chmod(folder.path, 0o777) == 0)
            for name in ["db", "tmp"] {
                try #require(mkdir(folder.file(name), 0o755) == 0)
                try #require(chmod(folder.file(name), 0o777) == 0)
            }
            let hex = ClamRecipeTests.virus.map { String(format: "%02x", $0) }.joined()
            try "Eicar-Test-Signature:0:*:\(hex)\n".write(
                toFile: folder.file("db/eicar.ndb"),
                atomically: true,
                encoding: .utf8
            )
            let limits = try RecipeBlock.text(
                "clamd",
                "clamd.conf",
                [
                    "MaxFileSize 2000M": "MaxFileSize 1M",
                    "/var/lib/clamav/tmp": folder.file("tmp"),
                ]
            )
            // As on Debian, clamd may not read the spool.
            let user = getuid() == 0 ? "User clamav\n" : ""
            try """
            LocalSocket \(folder.file("clamd.ctl"))
            LocalSocketMode 666
            FixStaleSocket true
            DatabaseDirectory \(folder.file("db"))
            Foreground true
            \(user)\(limits)
            """.write(toFile: settings, atomically: true, encoding: .utf8)
        }

        deinit { stop() }

        func start() throws {
            let log = URL(filePath: folder.file("clamd.log"))
            let daemon = try Daemon(
                Command.find("clamd") ?? "clamd",
                ["--config-file", settings],
                log: log
            )
            self.daemon = daemon
            try eventually("clamd listens") { [folder] in
                guard daemon.process.isRunning else {
                    let said = (try? String(contentsOf: log, encoding: .utf8)) ?? ""
                    throw NeverHappened(description: "clamd ended: \(said)")
                }
                return UnixSocket.accepts(folder.file("clamd.ctl"))
            }
        }

        func stop() {
            daemon?.signal(SIGKILL)
            _ = daemon?.wait()
            daemon = nil
            try? FileManager.default.removeItem(atPath: folder.file("clamd.ctl"))
        }
    }

    private func sandbox(_ scanner: Scanner) throws -> Sandbox {
        try Sandbox(
            routeSettings: RecipeBlock.route(
                "clamd",
                "default",
                ["--fdpass,": "--fdpass, --config-file=\(scanner.settings),"]
            ),
            front: .nginxWithModule
        )
    }

    private func complete(_ bytes: Data, _ name: String, in sandbox: Sandbox) throws
        -> WireClient.Answer
    {
        let fields = ["Content-Disposition: attachment; filename=\"\(name)\""]
        return try sandbox.append(sandbox.create("/files/\(name)", fields), bytes)
    }

    @Test("a clean upload is delivered; an infected one is refused with the virus's name")
    func verdicts() throws {
        let scanner = try Scanner()
        try scanner.start()
        let sandbox = try sandbox(scanner)
        let (_, clean) = try sandbox.randomFile(900_000)
        #expect(try complete(clean, "clean.bin", in: sandbox).status == 201)
        let long = Self.virus + Data(count: 300_000)
        for refused in [
            try complete(long, "eicar.com", in: sandbox),
            try sandbox.ask("PUT", "/files/eicar.com", content: Self.virus),
        ] {
            #expect(refused.status == 422)
            #expect(
                refused.text.contains("eicar.com: Eicar-Test-Signature.UNOFFICIAL FOUND"),
                "\(refused.text)"
            )
        }
        // Larger than clamd scans.
        let large = try complete(clean + clean, "large.bin", in: sandbox)
        #expect(large.status == 422)
        #expect(
            large.text.contains("Heuristics.Limits.Exceeded.MaxFileSize FOUND"),
            "\(large.text)"
        )
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [clean])
        // Larger than the route's limit.
        let tooLarge = try sandbox.ask(
            "POST",
            "/files/x",
            ["Upload-Complete: ?0", "Upload-Length: \(2_000 << 20 + 1)"],
            content: Data()
        )
        #expect(tooLarge.status == 413)
    }

    @Test("while clamd is stopped an upload is kept, and it is delivered when clamd is back")
    func stopped() throws {
        let scanner = try Scanner()
        let sandbox = try sandbox(scanner)
        let (_, clean) = try sandbox.randomFile(300_000)
        let resource = try sandbox.create("/files/clean.bin")
        let deferred = try sandbox.append(resource, clean)
        #expect(deferred.status == 503)
        #expect(try sandbox.spoolgate("list").output.contains("deferred"))
        #expect(sandbox.log.contains("Could not connect to clamd"), "\(sandbox.log)")
        try scanner.start()
        let delivered = try sandbox.append(resource, offset: clean.count)
        #expect(delivered.status == 201, "\(delivered.text)")
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [clean])
    }
}
