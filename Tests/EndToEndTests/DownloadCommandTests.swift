// `spoolgate-download` against nginx: what a person or cron starts, through a network that breaks.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("The client's command for downloads through nginx")
struct DownloadCommandTests {
    private let world: UploadCommandWorld
    private let bytes: Data
    private let url: String
    private static let size = 8 << 20
    /// SHA-256 of a mebibyte of zeros.
    private static let digestOfZeros = "sha-256=:MOFJVevxNSJm3C/4Bn5oEEYH51CrudOzZYK4r5Cfy1g=:"

    init() throws {
        let served = FileManager.default.temporaryDirectory
            .appending(path: "served-\(UUID().uuidString.prefix(8))")
        world = try UploadCommandWorld(
            // So slow that what comes can be looked at on its way.
            front: .nginxServing(
                "location /files/ {\n    alias \(served.path())/;\n    limit_rate 2m;\n}\n"
                    + "location /files/digested/ {\n    alias \(served.path())/;\n"
                    + "    add_header Repr-Digest \"\(Self.digestOfZeros)\";\n}\n"
            )
        )
        try FileManager.default.createSymbolicLink(
            at: served,
            withDestinationURL: world.sandbox.directory
        )
        bytes = try world.sandbox.randomFile(Self.size, "served.bin").bytes
        url = world.url("served.bin")
    }

    private func run(_ arguments: String...) throws -> Command {
        try Command(
            world.file("spoolgate-download"),
            arguments,
            environment: world.environment
        )
    }

    private func came() throws -> Data { try Data(contentsOf: URL(filePath: world.file("came"))) }

    @Test("killed and started again it goes on, and the file has its name when it is whole")
    func killed() throws {
        let path = world.file("came")
        let command = try Daemon(
            world.file("spoolgate-download"),
            [url, path],
            log: URL(filePath: world.file("command.log")),
            environment: world.environment
        )
        try eventually("some of it came") {
            world.states().contains { $0.contains(" offset=") && !$0.contains(" offset=0 ") }
        }
        command.signal(SIGKILL)
        #expect(command.wait() == -SIGKILL)
        #expect(!FileManager.default.fileExists(atPath: path))
        #expect(try run("--list").output.contains("can be resumed"))
        let again = try run("--progress", "json", url, path)
        #expect(again.status == 0, "\(again.errors)")
        #expect(!again.errors.contains("begun-anew"))
        #expect(try came() == bytes)
        #expect(world.states().isEmpty)
        #expect(!FileManager.default.fileExists(atPath: path + ".part"))
    }

    @Test(
        "a limit of file sizes ends it with a reason; what came is kept, and without the limit it goes on",
        .enabled(if: FileSizeLimit.isPossible, "prlimit is not installed")
    )
    func fileSizeLimit() throws {
        let path = world.file("came")
        let command = FileSizeLimit().launcher + [world.file("spoolgate-download"), url, path]
        let limited = try Command(
            command[0],
            Array(command.dropFirst()),
            environment: world.environment
        )
        #expect(limited.status == 1)
        #expect(limited.errors.contains("File too large"))
        #expect(limited.errors.contains("ulimit -f"))
        let again = try run("--progress", "json", url, path)
        #expect(again.status == 0, "\(again.errors)")
        #expect(!again.errors.contains("begun-anew"))
        #expect(try came() == bytes)
    }

    @Test("to standard output it comes whole and once, whatever the network does")
    func standardOutput() throws {
        let line = "'\(world.file("spoolgate-download"))' '\(url)' - >came"
        let command = try Daemon(
            "/bin/sh",
            ["-c", "cd '\(world.sandbox.directory.path())' && exec \(line)"],
            log: URL(filePath: world.file("command.log")),
            environment: world.environment
        )
        try eventually("some of it came") { ((try? came()) ?? Data()).count > 1 << 20 }
        world.proxy.cut()
        world.proxy.mend()
        #expect(command.wait() == 0)
        #expect(try came() == bytes)
        #expect(world.states().isEmpty)
    }

    @Test("what comes is held to the server's digest")
    func digest() throws {
        let zeros = Data(count: 1 << 20)
        try zeros.write(to: URL(filePath: world.file("zeros")))
        let path = world.file("came")
        let good = try run("--digest", world.url("digested/zeros"), path)
        #expect(good.status == 0, "\(good.errors)")
        #expect(try came() == zeros)
        try FileManager.default.removeItem(atPath: path)

        let wrong = try run("--digest", world.url("digested/served.bin"), path)
        #expect(wrong.status == 1)
        #expect(wrong.errors.contains("not what the server's Repr-Digest says"))
        #expect(!FileManager.default.fileExists(atPath: path))
        #expect(!FileManager.default.fileExists(atPath: path + ".part"))
        #expect(world.states().isEmpty)

        let none = try run("--digest", url, path)
        #expect(none.status == 1)
        #expect(none.errors.contains("Repr-Digest"))
        #expect(!FileManager.default.fileExists(atPath: path + ".part"))
    }

    @Test("what is not there is refused; what was given up is forgotten with its part")
    func refusedAndCancelled() throws {
        let missing = try run(world.url("missing.bin"), world.file("came"))
        #expect(missing.status == 1)
        #expect(missing.errors.contains("404"))
        #expect(world.states().isEmpty)

        let path = world.file("came")
        #expect(!FileManager.default.fileExists(atPath: path + ".part"))
        let command = try Daemon(
            world.file("spoolgate-download"),
            [url, path],
            log: URL(filePath: world.file("command.log")),
            environment: world.environment
        )
        try eventually("some of it came") { world.states().contains { $0.contains("\ntoken: ") } }
        command.signal(SIGTERM)
        #expect(command.wait() == 75)
        #expect(try run("--cancel", url, path).status == 0)
        #expect(world.states().isEmpty)
        #expect(!FileManager.default.fileExists(atPath: path + ".part"))
    }
}
