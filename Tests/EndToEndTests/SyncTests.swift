// Syncs: none for an upload in one request, the documented ones when an offset is reported.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite(
    "The syncs of each operation",
    .enabled(if: SystemCalls.canTrace, "strace cannot attach here")
)
struct SyncTests {
    private let upstream: LoopbackOrigin
    private let sandbox: Sandbox

    init() throws {
        upstream = try LoopbackOrigin(passing: Moments())
        sandbox = try Sandbox(upstream: upstream.base, front: .nginxWithModule)
    }

    /// As call and file: `fdatasync data`, `fsync uploads/`.
    private func syncs(_ body: () throws -> Void) throws -> [String] {
        let calls = try SystemCalls(
            of: sandbox,
            ["fsync", "fdatasync", "sync_file_range", "syncfs", "sync", "msync"]
        )
        try body()
        calls.stop()
        // The daemon records time and purges, and tries the spool, independent of requests: in `tmp/`, where an
        // upload has no name.
        return calls.lines.filter { !$0.contains("/spool/tmp") }.map { line in
            let call = line.drop { $0.isNumber || $0 == " " }.prefix { $0.isLetter || $0 == "_" }
            let place = line.components(separatedBy: "/spool/").dropFirst().first ?? line
            let file = line.contains(".data") ? "data" : "record"
            return "\(call) " + (call == "fsync" ? "\(place.prefix { $0.isLetter })/" : file)
        }
    }

    private func put(_ size: Int, _ fields: [String]) throws -> [Int] {
        let client = try sandbox.open("PUT", "/files/a.bin", fields, length: size)
        client.send(Data(repeating: 7, count: size))
        var statuses: [Int] = []
        repeat { statuses.append(try client.readAny().status) } while statuses.last ?? 0 < 200
        return statuses
    }

    private static let interop = "Upload-Draft-Interop-Version: 10"

    @Test("an uninterrupted upload in one request needs none", arguments: [1_000, 5 << 20])
    func oneRequest(size: Int) throws {
        let plain = try syncs {
            let statuses = try put(size, [])
            #expect(statuses == [201])
        }
        #expect(plain == [])
        let resumable = try syncs {
            let statuses = try put(size, [Self.interop, "Upload-Complete: ?1"])
            // Below min-size there is no upload resource.
            #expect(statuses == (size < 131_072 ? [201] : [104, 201]))
        }
        #expect(resumable == [])
        #expect(upstream.requests(to: "/files/a.bin").map(\.content.count) == [size, size])
    }

    @Test("the 201 of a creation, which reports an offset, and the delivery of acknowledged data")
    func promised() throws {
        var resource = ""
        let creation = try syncs { resource = try sandbox.create("/files/b.bin") }
        // The record's name, and the record.
        #expect(creation == ["fsync uploads/", "fdatasync record"])
        let append = try syncs {
            let response = try sandbox.append(resource, Data(repeating: 1, count: 1 << 20))
            #expect(response.status == 201)
        }
        // Before the delivery: content, name, attempt. After it: response.
        #expect(
            append == [
                "fdatasync data", "fsync uploads/", "fdatasync record", "fdatasync record",
            ]
        )
        let retrieval = try syncs {
            let offset = try sandbox.offset(of: resource)
            #expect(offset == 1 << 20)
        }
        #expect(retrieval == [])
    }

    @Test("an offset retrieval syncs the content received since the last one, once")
    func retrieval() throws {
        let resource = try sandbox.create("/files/c.bin")
        func retrieve() throws {
            let offset = try sandbox.offset(of: resource)
            #expect(offset == 1_000_000)
        }
        // Content slow enough for progress reports is synced earlier in part.
        let told = try syncs {
            let sender = try sandbox.startAppend(
                resource,
                length: 2000000,
                sent: Data(repeating: 2, count: 1_000_000)
            )
            try eventually("it is in the spool") { try sandbox.spooledOffset() == 1_000_000 }
            try retrieve()
            withExtendedLifetime(sender) {}
        }
        let again = try syncs { try retrieve() }
        #expect(told.starts(with: ["fdatasync data", "fsync uploads/", "fdatasync record"]))
        #expect(told.suffix(1) == ["fdatasync record"])
        #expect(again == [])
    }

    @Test("a promise that covers only crashes: none, in a directory neither")
    func process() throws {
        let sandbox = try Sandbox(routeSettings: ["promise: process"], front: .nginxWithModule)
        let calls = try SystemCalls(of: sandbox, ["fsync", "fdatasync", "sync_file_range"])
        let resource = try sandbox.create("/files/e.bin")
        #expect(try sandbox.append(resource, Data(repeating: 3, count: 3 << 20)).status == 201)
        #expect(try sandbox.ask("PUT", "/files/f.bin", content: Data("f".utf8)).status == 201)
        calls.stop()
        #expect(calls.lines.filter { !$0.contains("/spool/tmp") } == [])
        #expect(try sandbox.delivered().count == 2)
    }

    @Test("a purge of many uploads syncs each directory in batches, not for each upload")
    func purge() throws {
        let count = 300
        for _ in 0..<count { _ = try sandbox.create("/files/d.bin") }
        let output = sandbox.directory.appending(path: "purge.strace")
        let purge = try Command(
            Command.find("strace") ?? "strace",
            [
                "-f", "-qq", "-o", output.path(), "-e", "trace=fsync,fdatasync", Sandbox.program,
                "purge", "--force", "--older-than", "0s", "--config",
                sandbox.directory.path() + "/spoolgate.yaml",
            ]
        )
        #expect(purge.output.contains("\nRemoved \(count) uploads, "))
        let calls = try String(contentsOf: output, encoding: .utf8)
            .split(separator: "\n").count { $0.contains("sync(") }
        // Otherwise a removed upload could reappear.
        #expect(calls >= 2)
        #expect(calls < 2 * count)
    }
}
