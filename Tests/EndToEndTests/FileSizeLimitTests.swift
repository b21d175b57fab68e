// A write beyond the limit of file sizes (RLIMIT_FSIZE) is refused and does not kill the daemon.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("A limit of file sizes", .enabled(if: FileSizeLimit.isPossible, "prlimit is not installed"))
struct FileSizeLimitTests {
    private let limit = FileSizeLimit()

    @Test(
        "content beyond it gets 507, the part that fits is kept, and the client continues once the limit is raised"
    )
    func content() throws {
        let sandbox = try Sandbox(launcher: limit.launcher)
        let (_, bytes) = try sandbox.randomFile(3 << 20)
        let resource = try sandbox.create("/files/large")
        #expect(try sandbox.append(resource, bytes).status == 507)
        #expect(try sandbox.offset(of: resource) == FileSizeLimit.bytes)
        #expect(try sandbox.ask("PUT", "/files/ordinary", content: bytes).status == 507)
        #expect(sandbox.log.contains("File too large"))
        #expect(sandbox.log.contains("LimitFSIZE="))
        let other = try sandbox.create("/files/other")
        #expect(try sandbox.append(other, bytes.prefix(1 << 20)).status == 201)
        try limit.lift(from: sandbox)
        let rest = bytes.suffix(from: FileSizeLimit.bytes)
        #expect(try sandbox.append(resource, offset: FileSizeLimit.bytes, rest).status == 201)
        #expect(sandbox.daemon.process.isRunning)
        let delivered = try sandbox.delivered().map { try Data(contentsOf: $0) }
        #expect(delivered.contains(bytes) && delivered.count == 2)
    }

    @Test(
        "a file that cannot be copied to its destination is kept and delivered later",
        arguments: [false, true]
    )
    func copy(isByPath: Bool) throws {
        // Not on the spool's file system, so that the file cannot be linked.
        let folder = try ScratchDirectory(in: ScratchDirectory.memory)
        let key = folder.file("key")
        try Data("0123456789abcdef".utf8).write(to: URL(filePath: key))
        #expect(chmod(key, 0o600) == 0)
        let application = try LoopbackOrigin()
        let sandbox =
            isByPath
            ? try Sandbox(
                upstream: application.base,
                routeSettings: [
                    "form: path", "path: {directory: \(folder.path), key-file: \(key)}",
                ]
            ) : try Sandbox(upstream: "directory:\(folder.path)")
        let (_, bytes) = try sandbox.randomFile(3 << 20)
        let resource = try sandbox.create("/files/large")
        #expect(try sandbox.append(resource, bytes, complete: false).status == 204)
        try limit.set(on: sandbox)
        let refused = try sandbox.append(resource, offset: bytes.count)
        #expect(refused.status == 507)
        #expect(refused["upload-complete"] == "?0")
        #expect(sandbox.log.contains("File too large"))
        #expect(sandbox.log.contains("LimitFSIZE="))
        try limit.lift(from: sandbox)
        let response = try sandbox.append(resource, offset: bytes.count)
        #expect(response.status < 300, "\(response.status) \(response.text)")
        #expect(sandbox.daemon.process.isRunning)
        guard !isByPath else { return #expect(application.requests.count == 1) }
        let dropped = folder.names.filter { $0.contains("large") && !$0.hasSuffix(".json") }
        #expect(try dropped.map { try Data(contentsOf: URL(filePath: folder.file($0))) } == [bytes])
    }
}

struct FileSizeLimit {
    static let isPossible = Command.find("prlimit") != nil
    static let bytes = 2 << 20

    private static let prlimit = Command.find("prlimit") ?? "prlimit"

    let launcher = [prlimit, "--fsize=\(bytes):"]

    func set(on sandbox: Sandbox) throws { try set("\(Self.bytes)", on: sandbox) }

    func lift(from sandbox: Sandbox) throws { try set("unlimited", on: sandbox) }

    private func set(_ size: String, on sandbox: Sandbox) throws {
        let command = try Command(
            Self.prlimit,
            ["--pid", "\(sandbox.daemon.id)", "--fsize=\(size):"]
        )
        try #require(command.status == 0, "\(command.errors)")
    }
}
