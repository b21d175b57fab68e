// Without free inodes creations fail, and existing uploads continue.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite(
    "A spool without free inodes",
    .enabled(
        if: SmallDisk.isPossible,
        "no tmpfs can be mounted here (neither root nor unshare -rm)"
    )
)
struct FewInodesTests {
    /// About 240 for directories and 1,000 free leave room for about 170 uploads of two files.
    private static let inodes = 1_600
    /// The inodes that creations leave free (`SpoolRoom`).
    private static let left = 1_000

    private let upstream: LoopbackOrigin
    private let disk: SmallDisk
    private let sandbox: Sandbox

    init() throws {
        upstream = try LoopbackOrigin(passing: Moments())
        disk = try SmallDisk("64m", inodes: Self.inodes)
        sandbox = try Sandbox(
            upstream: upstream.base,
            front: .nginxWithModule,
            spool: disk.spool,
            launcher: disk.launcher
        )
    }

    private func create() throws -> WireClient.Answer {
        let client = try sandbox.open(
            "POST",
            "/files/new",
            ["Upload-Draft-Interop-Version: 10", "Upload-Complete: ?0"],
            length: 0
        )
        return try client.read()
    }

    private func createUntilRefused() throws -> (made: Int, refusal: WireClient.Answer) {
        for made in 0..<Self.inodes {
            let response = try create()
            if response.status != 201 { return (made, response) }
        }
        throw NeverHappened(description: "no creation was refused")
    }

    @Test(
        "creations are refused; HEAD, append, completion, delivery and DELETE of other uploads continue"
    )
    func existing() throws {
        let bytes = Data((0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* 31) })
        let begun = try sandbox.create("/files/begun")
        let empty = try sandbox.create("/files/empty")
        let cancelled = try sandbox.create("/files/cancelled")
        let start = try sandbox.append(begun, bytes.prefix(100_000), complete: false)
        #expect(start.status == 204)
        let (made, refusal) = try createUntilRefused()
        #expect(made > 50)
        #expect(refusal.status == 507)
        #expect(refusal["content-type"] == "application/problem+json")
        let free = try disk.freeInodes(in: sandbox)
        #expect(free >= Self.left - 4 && free < Self.left)
        // Another program uses up the rest.
        try disk.takeInodes(in: sandbox)
        #expect(try disk.freeInodes(in: sandbox) == 0)
        #expect(try create().status == 507)

        #expect(try sandbox.offset(of: begun) == 100_000)
        #expect(try sandbox.offset(of: empty) == 0)
        let next = try sandbox.append(
            begun,
            offset: 100_000,
            bytes[100_000..<200_000],
            complete: false
        )
        #expect(next.status == 204)
        #expect(try sandbox.offset(of: begun) == 200_000)
        let rest = try sandbox.append(begun, offset: 200_000, bytes[200_000...])
        #expect(rest.status == 201)
        let whole = try sandbox.append(empty, bytes)
        #expect(whole.status == 201)
        #expect(upstream.contents(to: "/files/begun") == [bytes])
        #expect(upstream.contents(to: "/files/empty") == [bytes])
        #expect(try sandbox.ask("DELETE", cancelled).status == 204)

        // Creations can use the freed inodes.
        try FileManager.default.removeItem(atPath: disk.root(in: sandbox) + "/elsewhere")
        #expect(try create().status == 201)
    }
}
