// `spoolgate-download` against nginx, as a user or cron runs it, through an unreliable network.

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
            // The rate leaves time to examine an unfinished download.
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

    @Test("it resumes after kill -9, and the file gets its name when complete")
    func killed() throws {
        let path = world.file("came")
        let command = try Daemon(
            world.file("spoolgate-download"),
            [url, path],
            log: URL(filePath: world.file("command.log")),
            environment: world.environment
        )
        try eventually("some content was received") {
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
        "a file size limit ends it with a reason; received content is kept, and it continues without the limit",
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

    @Test("standard output receives the content complete and once, despite network faults")
    func standardOutput() throws {
        let line = "'\(world.file("spoolgate-download"))' '\(url)' - >came"
        let command = try Daemon(
            "/bin/sh",
            ["-c", "cd '\(world.sandbox.directory.path())' && exec \(line)"],
            log: URL(filePath: world.file("command.log")),
            environment: world.environment
        )
        try eventually("some content was received") { ((try? came()) ?? Data()).count > 1 << 20 }
        world.proxy.cut()
        world.proxy.restore()
        #expect(command.wait() == 0)
        #expect(try came() == bytes)
        #expect(world.states().isEmpty)
    }

    @Test("received content is verified against the server's digest")
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
        #expect(wrong.errors.contains("do not match the server's Repr-Digest"))
        #expect(!FileManager.default.fileExists(atPath: path))
        #expect(!FileManager.default.fileExists(atPath: path + ".part"))
        #expect(world.states().isEmpty)

        let none = try run("--digest", url, path)
        #expect(none.status == 1)
        #expect(none.errors.contains("Repr-Digest"))
        #expect(!FileManager.default.fileExists(atPath: path + ".part"))
    }

    @Test(
        "a missing resource is refused; a canceled download is forgotten together with its partial file"
    )
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
        try eventually("some content was received") {
            world.states().contains { $0.contains("\ntoken: ") }
        }
        command.signal(SIGTERM)
        #expect(command.wait() == 75)
        #expect(try run("--cancel", url, path).status == 0)
        #expect(world.states().isEmpty)
        #expect(!FileManager.default.fileExists(atPath: path + ".part"))
    }

    // MARK: The destination

    @Test("in a directory the file gets the last part of the URL's path as its name")
    func directory() throws {
        let zeros = Data(count: 100_000)
        try zeros.write(to: URL(filePath: world.file("zeros ö")))
        try FileManager.default.createDirectory(
            atPath: world.file("into"),
            withIntermediateDirectories: false
        )
        let url = world.url("zeros%20%C3%B6?x=/y")
        let line =
            "cd '\(world.file("into"))' && exec '\(world.file("spoolgate-download"))' '\(url)' ."
        for (command, name) in [
            (["/bin/sh", "-c", line], "into/zeros ö"),
            ([world.file("spoolgate-download"), url, world.file("into")], "into/zeros ö"),
            ([world.file("spoolgate-download"), url, world.file("into/")], "into/zeros ö"),
        ] {
            let said = try Command(
                command[0],
                Array(command.dropFirst()),
                environment: world.environment
            )
            #expect(said.status == 0, "\(said.errors)")
            #expect(try Data(contentsOf: URL(filePath: world.file(name))) == zeros)
            try FileManager.default.removeItem(atPath: world.file(name))
        }
        for ending in ["", "..", ".", "%2e%2e", "a%2Fb", "a%00b", "a%0Ab", "a%C2%85b", "%ff"] {
            let said = try run(world.url(ending), world.file("into"))
            #expect(said.status == 2, "\(ending): \(said.errors)")
            #expect(said.errors.contains("does not end with a valid file name"), "\(said.errors)")
        }
        let missing = try run(url, world.file("nowhere/"))
        #expect(missing.status == 2)
        #expect(missing.errors.contains("is not a directory"))
        #expect(
            try FileManager.default.contentsOfDirectory(atPath: world.file("into")).isEmpty
        )
    }

    @Test("only one process writes a file, under any of its names")
    func twoIntoOne() throws {
        let path = world.file("came")
        let folder = world.file("into")
        try FileManager.default.createDirectory(
            atPath: folder,
            withIntermediateDirectories: false
        )
        try FileManager.default.createSymbolicLink(
            atPath: world.file("link"),
            withDestinationPath: world.sandbox.directory.path()
        )
        try Data(count: 1 << 20).write(to: URL(filePath: world.file("zeros")))
        let command = try Daemon(
            world.file("spoolgate-download"),
            [url, path],
            log: URL(filePath: world.file("command.log")),
            environment: world.environment
        )
        try eventually("some content was received") {
            world.states().contains { $0.contains("\ntoken: ") }
        }
        // It must not end before the others have tried, on a busy machine.
        command.signal(SIGSTOP)
        for other in ["into/../came", "into/./../came", "link/came"] {
            let same = try run(url, world.file(other))
            #expect(same.status == 75)
            #expect(same.errors.contains("already running"), "\(same.errors)")
            let another = try run(world.url("zeros"), world.file(other))
            #expect(another.status == 75)
            #expect(another.errors.contains("another download is writing to"), "\(another.errors)")
            #expect(another.errors.contains("came.part"))
            let cancelled = try run("--cancel", world.url("zeros"), world.file(other))
            #expect(cancelled.status == 75)
            #expect(cancelled.errors.contains("another download is writing to"))
        }
        command.signal(SIGCONT)
        #expect(command.wait() == 0)
        #expect(try came() == bytes)
        #expect(try run("--cancel", world.url("zeros"), path).status == 0)
        #expect(world.states().isEmpty)
        #expect(try came() == bytes)
    }

    @Test("a destination that is not a regular file is written directly")
    func device() throws {
        try FileManager.default.createSymbolicLink(
            atPath: world.file("full"),
            withDestinationPath: "/dev/full"
        )
        let full = try run(url, world.file("full"))
        #expect(full.status == 1)
        #expect(full.errors.contains("No space left on device"), "\(full.errors)")
        #expect(world.states().isEmpty)
        #expect(!FileManager.default.fileExists(atPath: world.file("full.part")))

        #expect(mkfifo(world.file("pipe"), 0o600) == 0)
        let line =
            "cat pipe >came & '\(world.file("spoolgate-download"))' '\(url)' pipe; code=$?; wait; exit $code"
        let piped = try Command(
            "/bin/sh",
            ["-c", "cd '\(world.sandbox.directory.path())'; \(line)"],
            environment: world.environment
        )
        #expect(piped.status == 0, "\(piped.errors)")
        #expect(try came() == bytes)
        let name = world.file("came")
        let out = "'\(world.file("spoolgate-download"))' '\(url)' /dev/stdout >'\(name)'"
        #expect(try Command("/bin/sh", ["-c", out], environment: world.environment).status == 0)
        #expect(try came() == bytes)
        #expect(world.states().isEmpty)
    }
}
