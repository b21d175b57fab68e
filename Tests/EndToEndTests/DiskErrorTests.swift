// Disk errors under the running daemon: strace makes system calls fail while clients upload.
//
// strace counts calls for each thread: `when=2` is the second such call of every thread.

import Foundation
import SpoolgateTestSupport
import Testing

struct DiskFault: CustomTestStringConvertible, Sendable {
    var call: String
    var error: String
    /// strace's expression: `1+` is every call, `2+3` the second and then each third.
    var when: String

    var testDescription: String { "\(call) \(error) when=\(when)" }

    static let all: [DiskFault] = [
        ("pwrite64", "EIO", "1+"), ("pwrite64", "ENOSPC", "2+3"), ("pwrite64", "EDQUOT", "3+2"),
        ("pwrite64", "EFBIG", "2+3"),
        ("fdatasync", "EIO", "1+"), ("fdatasync", "EIO", "2+2"), ("fsync", "EIO", "1+"),
        ("openat", "EMFILE", "1+"), ("openat", "EMFILE", "2+3"), ("unlinkat", "EIO", "1+"),
        ("ftruncate", "EIO", "1+"),
    ].map { DiskFault(call: $0.0, error: $0.1, when: $0.2) }
}

@Suite(
    "Disk errors under a running daemon",
    .enabled(if: SystemCalls.canTrace, "strace cannot attach here"),
    .serialized
)
struct DiskErrorTests {
    @Test(
        "no acknowledged data is lost, the daemon continues, and every upload ends",
        arguments: DiskFault.all
    )
    func fails(_ fault: DiskFault) throws {
        let world = try KillWorld()
        let name = "\(fault.call)-\(fault.error)"
        var generator = SplitMix(seed: UInt64.random(in: 0...999_999))
        let tasks = (0..<4).map { number in
            ResumingClient.Task(
                number: number,
                method: number.isMultiple(of: 2) ? "PUT" : "POST",
                target: "/files/\(name)-\(number)-*?answer=2000",
                content: generator.content(1_000_000),
                isCareful: number > 1,
                version: 10,
                partialAppends: number,
                // After a broken connection the client requests the offset: content is synced, or truncated if that
                // fails.
                breaksAfter: number == 0 ? 8 : 0
            )
        }
        let calls = try SystemCalls(
            of: world.sandbox,
            [fault.call],
            fault: "error=\(fault.error):when=\(fault.when)"
        )
        let clients = try world.carry(tasks) {
            defer { calls.stop() }
            // `ftruncate` is called only after a failed sync.
            if fault.call != "ftruncate" {
                try eventually("a call fails") { calls.injected > 0 }
            }
            let response = try world.sandbox.ask("GET", "/files/other")
            #expect(response.status == 201, "a request that is no upload depends on the disk")
            // Some of the next requests also meet the failing disk.
            let seen = calls.injected
            try? eventually("more calls fail", seconds: 0.3) { calls.injected > seen + 20 }
        }
        #expect(world.sandbox.daemon.process.isRunning)
        // The next start examines the files of failed attempts.
        try world.sandbox.crash()
        #expect(!world.sandbox.log.contains("corrupt=1"))
        let faults = try KillOracle(
            world: world,
            clients: clients,
            attempts: 100,
            storesResponses: false
        ).faults(log: nil)
        #expect(
            faults.isEmpty,
            "\(faults.joined(separator: "\n"))\n\(world.sandbox.log.suffix(4_000))"
        )
    }
}
