// `spoolgate-upload`, as a user or cron runs it, through an unreliable network.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("The client's command through nginx")
struct UploadCommandTests {
    private static let size = 8 << 20

    @Test("killed and restarted it resumes without output, and the file is delivered once")
    func killed() throws {
        let world = try UploadCommandWorld()
        let file = try world.sandbox.randomFile(Self.size)
        let path = file.url.path()
        #expect(try world.beginAndStop(path, "killed.bin", signal: SIGKILL) == -SIGKILL)
        #expect(world.states().count == 1)
        let listed = try world.run("--list")
        #expect(listed.output.contains("can be resumed  \(path) \(world.url("killed.bin"))"))

        let passed = world.proxy.passed
        let again = try world.run(path, world.url("killed.bin"))
        #expect(again.status == 0, "\(again.errors)")
        #expect(again.errors.isEmpty)
        #expect(again.output.contains(#""length":\#(Self.size)"#))
        #expect(world.proxy.passed - passed < Self.size - (1 << 20), "the upload started over")
        #expect(try world.delivered("killed.bin") == [file.bytes])
        #expect(world.states().isEmpty)
    }

    @Test("a server that speaks only tus is reported as such", arguments: [1_000, 2 << 20])
    func tusAlone(size: Int) throws {
        let world = try UploadCommandWorld()
        let origin = try LoopbackOrigin { connection in
            while var request = try connection.receiveHead() {
                try connection.receiveContent(of: &request)
                try connection.response("412 Precondition Failed", fields: ["Tus-Version: 1.0.0"])
            }
        }
        let file = try world.sandbox.randomFile(size)
        let refused = try world.run(file.url.path(), origin.base + "/files")
        #expect(refused.status == 1)
        #expect(refused.errors.contains("412 Precondition Failed; this server speaks tus"))
        #expect(!refused.errors.contains("--creation"), "\(refused.errors)")
        #expect(world.states().isEmpty)
    }

    @Test("no append is longer than --max-append")
    func maximumAppend() throws {
        let world = try UploadCommandWorld()
        let file = try world.sandbox.randomFile(1 << 20)
        let maximum = 192 << 10
        let sent = try world.run(
            "--creation",
            "careful",
            "--max-append",
            "192K",
            file.url.path(),
            world.url("pieces.bin")
        )
        #expect(sent.status == 0, "\(sent.errors)")
        #expect(try world.delivered("pieces.bin") == [file.bytes])
        let ends = world.sandbox.log.split(separator: "\n")
            .filter { $0.contains("content received") }
            .compactMap { $0.firstMatch(of: /offset"?[=:] ?(\d+)/).flatMap { Int($0.1) } }
        #expect(ends.last == 1 << 20)
        for (start, end) in zip([0] + ends, ends) { #expect(end - start <= maximum, "\(ends)") }
    }

    @Test("its state is readable only by its owner, and holds no credentials")
    func state() throws {
        let world = try UploadCommandWorld()
        let file = try world.sandbox.randomFile(Self.size)
        let secret = world.file("fields")
        try "Authorization: Bearer s3cret\n".write(
            toFile: secret,
            atomically: true,
            encoding: .utf8
        )
        world.proxy.hold(at: 2 << 20)
        let command = try world.start(
            "--header-file",
            secret,
            "-H",
            "X-Key: s3cret",
            file.url.path(),
            world.url("a.bin")
        )
        try eventually("it has stored a token") {
            world.states().contains { $0.contains("\ntoken: ") }
        }
        let folder = world.file("state/spoolgate-upload")
        let name = try #require(FileManager.default.contentsOfDirectory(atPath: folder).first)
        for (path, mode) in [(folder, 0o700), (folder + "/" + name, 0o600)] {
            let attributes = try FileManager.default.attributesOfItem(atPath: path)
            #expect(attributes[.posixPermissions] as? Int == mode)
        }
        #expect(!world.states().joined().contains("s3cret"))
        command.signal(SIGTERM)
        #expect(command.wait() == 75)
    }

    @Test("while one runs, the same command exits and asks to try later")
    func locked() throws {
        let world = try UploadCommandWorld()
        let file = try world.sandbox.randomFile(Self.size)
        world.proxy.hold(at: 2 << 20)
        let command = try world.start(file.url.path(), world.url("a.bin"))
        try eventually("it has stored a token") {
            world.states().contains { $0.contains("\ntoken: ") }
        }
        let second = try world.run(file.url.path(), world.url("a.bin"))
        #expect(second.status == 75)
        #expect(second.errors.contains("already running"))
        #expect(try world.run("--list").output.contains("running"))
        world.proxy.hold(at: nil)
        #expect(command.wait() == 0)
        #expect(try world.delivered("a.bin") == [file.bytes])
    }

    @Test("one file is one upload, by any of its paths")
    func paths() throws {
        let world = try UploadCommandWorld()
        let file = try world.sandbox.randomFile(Self.size)
        let path = file.url.path()
        let folder = world.file("into")
        try FileManager.default.createDirectory(
            atPath: folder,
            withIntermediateDirectories: false
        )
        try FileManager.default.createSymbolicLink(
            atPath: folder + "/link",
            withDestinationPath: path
        )
        #expect(try world.beginAndStop(path, "a.bin", signal: SIGTERM) == 75)
        #expect(world.states().count == 1)
        world.proxy.hold(at: 1 << 20)
        let command = try world.start(folder + "/link", world.url("a.bin"))
        try eventually("it runs") {
            try world.run("--list").output.contains("running")
        }
        for other in ["\(folder)/../\(file.url.lastPathComponent)", "\(folder)/./link", path] {
            let said = try world.run(other, world.url("a.bin"))
            #expect(said.status == 75)
            #expect(said.errors.contains("already running"), "\(said.errors)")
        }
        world.proxy.hold(at: nil)
        #expect(command.wait() == 0)
        #expect(try world.delivered("a.bin") == [file.bytes])
        #expect(world.states().isEmpty)
    }

    @Test("it waits for a network that returns, and leaves one that does not to the next run")
    func away() throws {
        let world = try UploadCommandWorld()
        let file = try world.sandbox.randomFile(Self.size)
        world.proxy.hold(at: 2 << 20)
        let command = try world.start(file.url.path(), world.url("away.bin"))
        try eventually("some content is sent") { world.proxy.passed >= 2 << 20 }
        world.proxy.cut()
        try eventually("it tried again") { world.proxy.refused >= 2 }
        world.proxy.hold(at: nil)
        world.proxy.restore()
        #expect(command.wait() == 0)
        #expect(try world.delivered("away.bin") == [file.bytes])

        world.proxy.cut()
        let name = world.url("later.bin")
        let later = try world.run("--retry-for", "1s", file.url.path(), name)
        #expect(later.status == 75)
        #expect(later.errors.hasPrefix("spoolgate-upload: "))
        #expect(later.errors.split(separator: "\n").count == 1)
        world.proxy.restore()
        #expect(try world.run("--retry-for", "1s", file.url.path(), name).status == 0)
        #expect(try world.delivered("later.bin") == [file.bytes])
    }

    @Test(
        "an unavailable application ends small and large files alike: later, and then accepted once"
    )
    func smallAway() throws {
        let world = try UploadCommandWorld()
        let sandbox = world.sandbox
        let delivered = "directory:\(sandbox.directory.path())/delivered"
        let dead = "http://127.0.0.1:\(try FreePort.take(1)[0])"
        try sandbox.reload(replacing: delivered, with: dead)
        let files = try [(9_000, "small.bin"), (Self.size, "large.bin")].map {
            try sandbox.randomFile($0.0, $0.1)
        }
        for file in files {
            let name = file.url.lastPathComponent
            let said = try world.run("--retry-for", "1s", file.url.path(), world.url(name))
            #expect(said.status == 75, "\(name): \(said)")
            #expect(said.errors.contains("could not be reached"), "\(name): \(said.errors)")
        }
        try sandbox.reload(replacing: dead, with: delivered)
        let small = world.url("small.bin")
        #expect(try world.run("--retry-for", "1s", files[0].url.path(), small).status == 0)
        #expect(try world.delivered("small.bin") == [files[0].bytes])
    }

    @Test("after SIGTERM, an upload that has expired starts over")
    func gone() throws {
        let world = try UploadCommandWorld()
        let file = try world.sandbox.randomFile(Self.size)
        let path = file.url.path()
        #expect(try world.beginAndStop(path, "gone.bin", signal: SIGTERM) == 75)
        // The upload is in use until nginx detects that its client is gone.
        try eventually("it is purged") {
            _ = try world.sandbox.spoolgate("purge", "--older-than", "0s", "--force")
            return try world.sandbox.spoolgate("list", "--json").output.isEmpty
        }
        let again = try world.run("--progress", "json", path, world.url("gone.bin"))
        #expect(again.status == 0, "\(again.errors)")
        #expect(again.errors.contains(#""event":"begun-anew""#))
        #expect(try world.delivered("gone.bin") == [file.bytes])
    }

    @Test("a changed file is refused until the old upload is canceled")
    func changed() throws {
        let world = try UploadCommandWorld()
        let file = try world.sandbox.randomFile(Self.size)
        let path = file.url.path()
        #expect(try world.beginAndStop(path, "changed.bin", signal: SIGINT) == 75)
        let other = Data(file.bytes.reversed())
        try other.write(to: file.url)
        let refused = try world.run(path, world.url("changed.bin"))
        #expect(refused.status == 1)
        #expect(refused.errors.contains("changed") && refused.errors.contains("--cancel"))
        #expect(try world.sandbox.delivered().isEmpty)

        #expect(try world.run("--cancel", path, world.url("changed.bin")).status == 0)
        #expect(world.states().isEmpty)
        try eventually("no upload is left") {
            try world.sandbox.spoolgate("list", "--json").output.isEmpty
        }
        #expect(try world.run("--cancel", path, world.url("changed.bin")).status == 1)
        #expect(try world.run(path, world.url("changed.bin")).status == 0)
        #expect(try world.delivered("changed.bin") == [other])
    }

    @Test("a changed file is sent anew on request, and the old upload is canceled")
    func changedAnew() throws {
        let world = try UploadCommandWorld()
        let file = try world.sandbox.randomFile(Self.size)
        let path = file.url.path()
        #expect(try world.beginAndStop(path, "anew.bin", signal: SIGINT) == 75)
        let other = Data(file.bytes.reversed())
        try other.write(to: file.url)
        let refused = try world.run("--changed", "refuse", path, world.url("anew.bin"))
        #expect(refused.status == 1 && refused.errors.contains("--changed anew"))
        let anew = try world.run("--changed", "anew", path, world.url("anew.bin"))
        #expect(anew.status == 0, "\(anew.errors)")
        #expect(try world.delivered("anew.bin") == [other])
        #expect(world.states().isEmpty)
        try eventually("only the new upload is left") {
            let lines = try world.sandbox.spoolgate("list", "--json").output.split(separator: "\n")
            return lines.count == 1 && lines[0].contains(#""state":"delivered""#)
        }
    }

    @Test("a stream of some hundred megabytes needs no more memory than its first part")
    func stream() throws {
        let world = try UploadCommandWorld()
        let source = world.file("stream.src")
        let fifo = world.file("fifo")
        let size = 256 << 20
        let made = try Command(
            "/bin/sh",
            ["-c", "head -c \(size) /dev/urandom >'\(source)' && mkfifo '\(fifo)'"]
        )
        #expect(made.status == 0)
        world.proxy.hold(at: 48 << 20)
        let command = try Daemon(
            "/bin/sh",
            [
                "-c",
                "cat '\(source)' >'\(fifo)' & exec '\(UploadCommandWorld.program)' - "
                    + "'\(world.url("stream.bin"))' <'\(fifo)'",
            ],
            log: URL(filePath: world.file("command.log")),
            environment: world.environment
        )
        try eventually("some content is sent") { world.proxy.passed >= 48 << 20 }
        let before = command.footprint().rss
        world.proxy.hold(at: 224 << 20)
        try eventually("most content is sent") { world.proxy.passed >= 224 << 20 }
        let after = command.footprint().rss
        world.proxy.hold(at: nil)
        #expect(command.wait() == 0)
        #expect(after < before + 4_096, "\(before) KiB, then \(after) KiB")
        let delivered = try #require(world.sandbox.delivered().first)
        #expect(try Command("/usr/bin/cmp", [source, delivered.path()]).status == 0)
    }

    @Test("a stream starts over")
    func streamAgain() throws {
        let world = try UploadCommandWorld()
        // More than the send buffers hold, so that the last bytes are unsent.
        let size = 32 << 20
        let file = try world.sandbox.randomFile(size)
        world.proxy.hold(at: 5 << 20)
        let line =
            "exec '\(UploadCommandWorld.program)' - '\(world.url("new.bin"))' <'\(file.url.path())'"
        let command = try Daemon(
            "/bin/sh",
            ["-c", line],
            log: URL(filePath: world.file("command.log")),
            environment: world.environment
        )
        try eventually("some content is sent") { world.proxy.passed >= 5 << 20 }
        command.signal(SIGTERM)
        #expect(command.wait() == 75)
        world.proxy.hold(at: nil)
        let between = world.proxy.passed
        let again = try Command("/bin/sh", ["-c", line], environment: world.environment)
        #expect(again.status == 0, "\(again.errors)")
        #expect(world.proxy.passed - between >= size)
        #expect(try world.delivered("new.bin") == [file.bytes])
    }

    @Test(
        "a refusal exits with 1, with its content on standard output and a sentence on standard error"
    )
    func refused() throws {
        let world = try UploadCommandWorld(front: .nginxWithLogin(.password))
        let file = try world.sandbox.randomFile(Self.size)
        let refused = try world.run(file.url.path(), world.url("a.bin"))
        #expect(refused.status == 1)
        #expect(refused.errors.contains("401"))
        #expect(refused.output.contains("401"))
        #expect(world.states().isEmpty)

        let netrc = world.file("netrc")
        try "machine 127.0.0.1 login alice password secret\n".write(
            toFile: netrc,
            atomically: true,
            encoding: .utf8
        )
        let taken = try world.run("--netrc-file", netrc, file.url.path(), world.url("a.bin"))
        #expect(taken.status == 0, "\(taken.errors)")
        #expect(try world.delivered("a.bin") == [file.bytes])
    }

    @Test("nothing is sent before Retry-After, and the next run knows the time")
    func notBefore() throws {
        let world = try UploadCommandWorld()
        let file = try world.sandbox.randomFile(Self.size)
        let command = try world.start("--not-before", "1h", file.url.path(), world.url("a.bin"))
        try eventually("it waits") { world.states().contains { $0.contains("\nnot-before: ") } }
        command.signal(SIGTERM)
        #expect(command.wait() == 75)
        #expect(world.proxy.passed == 0)
        let told = world.states()
        let again = try world.start(file.url.path(), world.url("a.bin"))
        try eventually("it waits again") {
            try world.run("--list").output.contains("running")
        }
        again.signal(SIGTERM)
        #expect(again.wait() == 75)
        #expect(world.states() == told)
        #expect(world.proxy.passed == 0)

        let soon = try world.run("--not-before", "1s", file.url.path(), world.url("b.bin"))
        #expect(soon.status == 0)
        #expect(try world.delivered("b.bin") == [file.bytes])
    }

    @Test("an upload that the server may have accepted is sent again only on request")
    func unknownOutcome() throws {
        let world = try UploadCommandWorld()
        // The response is lost.
        let origin = try LoopbackOrigin { _ = try $0.receiveRequest() }
        let path = try world.sandbox.randomFile(4096).url.path()
        let url = "\(origin.base)/small"
        #expect(try world.run(path, url).status == 1)
        let again = try world.run(path, url)
        #expect(again.status == 1)
        #expect(again.errors.contains("--cancel removes its state"))
        #expect(origin.requests.count == 1)
        #expect(try world.run("--list").output.contains("outcome unknown"))
        #expect(try world.run("--cancel", path, url).status == 0)
        #expect(try world.run(path, url).status == 1)
        #expect(origin.requests.count == 2)
    }

    @Test("a file's digest is sent, and content that contradicts it is refused")
    func digest() throws {
        let world = try UploadCommandWorld()
        let file = try world.sandbox.randomFile(Self.size)
        let path = file.url.path()
        #expect(try world.run("--digest", path, world.url("good.bin")).status == 0)
        #expect(try world.delivered("good.bin") == [file.bytes])

        // As if the file had been replaced.
        let wrong = "Repr-Digest: sha-256=:\(Data(repeating: 7, count: 32).base64EncodedString()):"
        let refused = try world.run("-H", wrong, path, world.url("bad.bin"))
        #expect(refused.status == 1)
        #expect(refused.errors.contains("400"))
        #expect(try world.delivered("bad.bin").isEmpty)
    }
}
