// The commands on a spool with more uploads than they sort.
//
// For measurements,
//
//     MANY_UPLOADS=500000 MANY_UPLOADS_IN=/var/tmp/many swift test --filter ScaleTests
//
// creates a spool and keeps it, for example for `/usr/bin/time -v spoolgate list --spool /var/tmp/many`.

import Foundation
import HTTPTypes
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

@Suite("Many uploads")
struct ScaleTests {
    private static let environment = ProcessInfo.processInfo.environment
    private static let count = environment["MANY_UPLOADS"].flatMap { Int($0) } ?? 0

    /// The target of the first upload is very long.
    private func make(_ count: Int, in directory: String) throws {
        let spool = try Spool(directory: directory)
        for number in 0..<count {
            let id = UploadID(high: .random(in: 0...(.max)), low: .random(in: 0...(.max)))
            var creation = UploadCreation(
                id: id,
                route: "default",
                head: RequestHead(
                    method: .post,
                    target: "/files/\(number)"
                        + (number == 0 ? String(repeating: "x", count: 7_900) : ""),
                    fields: [.contentType: "text/plain"]
                ),
                remoteAddress: "192.0.2.1",
                created: spool.clock.now
            )
            creation.resourcePath = "/files/upload-resource/\(id)"
            creation.scheme = "https"
            let upload = try spool.create(creation, requestRelease: {})
            let bytes = Array("some content".utf8)
            try upload.append(bytes.span.bytes)
            upload.unlock()
        }
    }

    @Test("a spool for measurements", .enabled(if: count > 0))
    func figures() throws {
        try make(Self.count, in: try #require(Self.environment["MANY_UPLOADS_IN"]))
    }

    // Long because `list` changes its order only above 10,000 uploads, which must exist.
    @Test(
        "each is listed and purged once, no long target widens a column, and the order is stated",
        .enabled(if: Portion.ofThisRun.includes(0, of: 4), "it is in another portion")
    )
    func many() throws {
        let scratch = try ScratchDirectory(in: ScratchDirectory.memory)
        let directory = scratch.file("spool")
        let count = 10_050
        try make(count, in: directory)
        func run(_ arguments: String...) throws -> Command {
            // Without this machine's settings.
            try Command(
                Sandbox.program,
                arguments + ["--spool", directory, "--config", "/dev/null"]
            )
        }
        let list = try run("list")
        #expect(list.status == 0)
        #expect(
            list.errors
                == "spoolgate: more than 10000 uploads: listed in spool order; --sort age lists "
                + "the first 10000, longest idle first\n"
        )
        let rows = list.output.split(separator: "\n")
        #expect(rows.count == count + 2)
        #expect(Set(rows.dropFirst().dropLast().map { $0.prefix(26) }).count == count)
        #expect(rows.last?.hasPrefix("\(count) uploads, ") == true)
        #expect(rows.allSatisfy { $0.count < 350 })
        #expect(rows.count { $0.count > 200 } == 1)
        for sorted in [
            try run("list", "--sort", "size"), try run("list", "--sort", "age", "--json"),
        ] {
            #expect(sorted.errors == "spoolgate: only the first 10000 of \(count) are shown\n")
            #expect([10_000, 10_002].contains(sorted.output.split(separator: "\n").count))
        }
        let shape = try run("list", "--shape").output.split(separator: "\n")
        #expect(shape.count == 3)
        #expect(shape[1].hasPrefix("partial    \(count)  "))
        let objects = try run("list", "--json").output.split(separator: "\n")
        #expect(objects.count == count)
        #expect(objects.count { $0.utf8.count > 7_900 } == 1)
        let kept = try run("purge")
        #expect(kept.output == "Removed 0 uploads, freed 0B.\n")
        let purge = try run("purge", "--force", "--older-than", "0s")
        #expect(purge.status == 0)
        #expect(purge.output.split(separator: "\n").count == count + 1)
        #expect(purge.output.contains("\nRemoved \(count) uploads, freed "))
        #expect(try run("list").output == "No uploads in \(directory).\n")
    }

    @Test(
        "purge opens a record twice and its content once, and makes removals durable in batches",
        .enabled(if: SystemCalls.canTrace, "strace cannot run here")
    )
    func calls() throws {
        let scratch = try ScratchDirectory(in: ScratchDirectory.memory)
        let directory = scratch.file("spool")
        let count = 1_500
        try make(count, in: directory)
        let trace = scratch.file("trace")
        let purge = try Command(
            Command.find("strace") ?? "strace",
            ["-f", "-o", trace, "-e", "trace=openat,fsync", Sandbox.program]
                + ["purge", "--force", "--older-than", "0s"]
                + ["--spool", directory, "--config", "/dev/null"]
        )
        #expect(purge.status == 0)
        #expect(purge.output.contains("\nRemoved \(count) uploads, freed "))
        let calls = try String(contentsOfFile: trace, encoding: .utf8).split(separator: "\n")
        // Once to examine it, and once to remove it under its lock.
        let opened = calls.compactMap { $0.split(separator: "\"").dropFirst().first }
        #expect(opened.count { UploadID($0) != nil } == 2 * count)
        let batches = 3
        let shards = 32
        #expect(calls.count { $0.contains("fsync(") } <= shards + batches - 1)
    }

    @Test("with few rows the columns are as wide as their content")
    func few() throws {
        let scratch = try ScratchDirectory(in: ScratchDirectory.memory)
        let directory = scratch.file("spool")
        try make(20, in: directory)
        let list = try Command(
            Sandbox.program,
            ["list", "--spool", directory, "--config", "/dev/null"]
        )
        let rows = list.output.split(separator: "\n")
        #expect(rows.count == 22)
        #expect(rows.count { $0.count > 150 } == 1)
        #expect(rows.allSatisfy { $0.count < 300 })
    }
}
