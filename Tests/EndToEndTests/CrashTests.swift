// Crashes, restarts, drains and reloads lose no acknowledged offset.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("Signals and crashes of the daemon")
struct CrashTests {
    @Test(
        "kill -9 at random moments: every reported offset is correct and the delivered bytes are identical"
    )
    func killedAtRandomMoments() throws {
        let sandbox = try Sandbox()
        let (_, bytes) = try sandbox.randomFile(200 << 20)
        let resource = try sandbox.create("/files/crash.bin")
        var offset = 0
        for round in 1...20 {
            let sender = try sandbox.startAppend(
                resource,
                offset: offset,
                length: bytes.count - offset
            )
            // The crash follows a random number of bytes, up to about a twentieth of the rest.
            let share = (bytes.count - offset) / (22 - round)
            let amount = Int.random(in: 1...max(1, share))
            sender.send(bytes[offset..<offset + amount])
            try sandbox.crash()
            sender.cut()
            let told = try sandbox.offset(of: resource)
            #expect(told >= offset && told <= offset + amount, "round \(round)")
            // An offset from HEAD survives another crash.
            if round % 5 == 0 {
                try sandbox.crash()
                #expect(try sandbox.offset(of: resource) == told)
            }
            offset = told
        }
        let response = try sandbox.append(resource, offset: offset, bytes.suffix(from: offset))
        #expect(response.status == 201)
        let delivered = try sandbox.delivered()
        #expect(delivered.count == 1)
        #expect(try delivered.first.map { try Data(contentsOf: $0) == bytes } == true)
    }

    @Test("SIGTERM keeps every byte, lets deliveries finish, and exits with 0")
    func drains() throws {
        let sandbox = try Sandbox()
        let resource = try sandbox.create("/files/drain.bin")
        let sender = try sandbox.startAppend(
            resource,
            length: 9000,
            sent: Data(repeating: 5, count: 4_000)
        )
        try eventually("4000 bytes are in the spool") { try sandbox.spooledOffset() == 4_000 }
        sandbox.daemon.signal(SIGTERM)
        #expect(sandbox.daemon.wait() == 0)
        try sandbox.startAgain()
        #expect(try sandbox.offset(of: resource) == 4_000)
        withExtendedLifetime(sender) {}
    }

    @Test("SIGTERM lets uploads finish if their clients cannot resume them")
    func drainsOrdinary() throws {
        let sandbox = try Sandbox()
        let content = Data((0..<600_000).map { UInt8(truncatingIfNeeded: $0 &* 7) })
        // Content too large for memory: an ordinary upload, and a resumable one without a 104.
        let uploads = try [[], ["Upload-Complete: ?1", "Upload-Draft-Interop-Version: 6"]].map {
            let client = try sandbox.open("PUT", "/files/late.bin", $0, length: 600000)
            client.send(content.prefix(300_000))
            return client
        }
        try eventually("half of both uploads is received") {
            // The list is empty at first.
            try (try? sandbox.spooledOffset()) == 300_000 && sandbox.namelessBytes() == 300_000
        }
        sandbox.daemon.signal(SIGTERM)
        try eventually("the daemon drains") { sandbox.log.contains("shutdown started") }
        for client in uploads { client.send(content.dropFirst(300_000)) }
        for client in uploads { #expect(try client.read().status == 201) }
        #expect(sandbox.daemon.wait() == 0)
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [content, content])
    }

    @Test("SIGHUP changes the settings without dropping a request")
    func reloads() throws {
        let sandbox = try Sandbox(routeSettings: ["limits: {max-size: 64MiB}"])
        let resource = try sandbox.create("/files/reload.bin")
        let sender = try sandbox.startAppend(
            resource,
            length: 4000,
            sent: Data(repeating: 5, count: 2_000)
        )
        try eventually("2000 bytes are in the spool") { try sandbox.spooledOffset() == 2_000 }
        try sandbox.reload(replacing: "max-size: 64MiB", with: "max-size: 1MiB")
        let refused = try sandbox.ask("PUT", "/files/big.bin", content: Data(count: 2 << 20))
        #expect(refused.status == 413)
        sender.send(Data(repeating: 6, count: 2_000))
        #expect(try sender.read().status == 201)
    }

    @Test("invalid new settings leave the old ones in effect")
    func wrongReload() throws {
        let sandbox = try Sandbox(routeSettings: ["limits: {max-size: 64MiB}"])
        try sandbox.reload(replacing: "max-size: 64MiB", with: "max-sizes: 1MiB")
        #expect(sandbox.log.contains("unknown setting"))
        let response = try sandbox.ask("PUT", "/files/big.bin", content: Data(count: 2 << 20))
        #expect(response.status == 201)
    }

    @Test("purge next to a running daemon removes expired uploads and keeps those in use")
    func purges() throws {
        let sandbox = try Sandbox()
        let stale = try sandbox.create("/files/stale.bin")
        let busy = try sandbox.create("/files/busy.bin")
        let sender = try sandbox.startAppend(
            busy,
            length: 2000,
            sent: Data(repeating: 1, count: 1_000)
        )
        try eventually("the upload is in use") {
            try sandbox.spoolgate("list").output.contains("*")
        }
        let dry = try sandbox.spoolgate("purge", "--force", "--older-than", "0s", "--dry-run")
        #expect(dry.output.contains("Would remove 1 upload"))
        #expect(try sandbox.offset(of: stale) == 0)
        let purge = try sandbox.spoolgate("purge", "--force", "--older-than", "0s")
        #expect(purge.status == 0)
        #expect(purge.output.contains("Removed 1 upload"))
        #expect(purge.output.contains("1 in use"))
        #expect(try sandbox.ask("HEAD", stale).status == 404)
        sender.send(Data(repeating: 2, count: 1_000))
        #expect(try sender.read().status == 201)
    }
}

extension Sandbox {
    /// Bytes in unnamed files: ordinary uploads in progress.
    fileprivate func namelessBytes() throws -> Int {
        let folder = "/proc/\(daemon.process.processIdentifier)/fd"
        return try FileManager.default.contentsOfDirectory(atPath: folder)
            .map { "\(folder)/\($0)" }
            .filter {
                let target = try? FileManager.default.destinationOfSymbolicLink(atPath: $0)
                return target?.hasSuffix(" (deleted)") == true
            }
            .reduce(0) { sum, path in
                var status = stat()
                return stat(path, &status) == 0 ? sum + Int(status.st_size) : sum
            }
    }
}
