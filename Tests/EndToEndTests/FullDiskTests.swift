// A small spool that becomes full during content, a creation or a delivery.
//
// The daemon's mount namespace has a tmpfs, which the test reads through /proc.

import Foundation
import SpoolgateTestSupport
import Testing

final class SmallDisk {
    /// Whether one can be mounted: as root, or in a user namespace.
    static let isPossible: Bool = {
        let probe = try? Command(
            unshare[0],
            Array(unshare.dropFirst()) + ["mount -t tmpfs tmpfs /mnt"]
        )
        return probe?.status == 0
    }()

    /// Runs the next word, a shell command, in its own mount namespace.
    static let unshare = [
        Command.find("unshare") ?? "unshare", getuid() == 0 ? "-m" : "-rm", "sh", "-c",
    ]

    let mount: URL
    var spool: String { mount.path() + "/spool" }
    private let options: String

    /// `size` is in the notation of tmpfs(5).
    init(_ size: String, inodes: Int? = nil) throws {
        options = "size=\(size)" + (inodes.map { ",nr_inodes=\($0)" } ?? "")
        mount = FileManager.default.temporaryDirectory.appending(path: "disk-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: mount, withIntermediateDirectories: true)
    }

    deinit { try? FileManager.default.removeItem(at: mount) }

    var launcher: [String] {
        let mounting = "mount -t tmpfs -o \(options) tmpfs '\(mount.path())'"
        return Self.unshare + [mounting + " && exec \"$0\" \"$@\""]
    }

    func root(in sandbox: Sandbox) -> String {
        "/proc/\(sandbox.daemon.id)/root\(mount.path())"
    }

    func freeInodes(in sandbox: Sandbox) throws -> Int {
        var status = statvfs()
        guard statvfs(root(in: sandbox), &status) == 0 else {
            throw NeverHappened(description: "statvfs: errno \(errno)")
        }
        return Int(status.f_favail)
    }

    func takeInodes(in sandbox: Sandbox) throws {
        let directory = root(in: sandbox) + "/elsewhere"
        guard mkdir(directory, 0o700) == 0 else {
            throw NeverHappened(description: "mkdir: errno \(errno)")
        }
        for number in 0... {
            let file = open("\(directory)/\(number)", O_WRONLY | O_CREAT | O_EXCL, 0o600)
            guard file >= 0 else {
                guard errno == ENOSPC else {
                    throw NeverHappened(description: "taking an inode: errno \(errno)")
                }
                return
            }
            close(file)
        }
    }

    /// Fills it until `free` bytes are left; nil: frees the space.
    func leave(_ free: Int?, in sandbox: Sandbox) throws {
        let filler = root(in: sandbox) + "/filler"
        unlink(filler)
        guard let free else { return }
        var status = statvfs()
        guard statvfs((filler as NSString).deletingLastPathComponent, &status) == 0 else {
            throw NeverHappened(description: "statvfs: errno \(errno)")
        }
        let file = open(filler, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
        defer { close(file) }
        let size = Int(status.f_bavail) * Int(status.f_frsize) - free
        guard file >= 0, posix_fallocate(file, 0, size) == 0 else {
            throw NeverHappened(description: "filling the disk: errno \(errno)")
        }
    }
}

@Suite(
    "A full spool",
    .enabled(
        if: SmallDisk.isPossible,
        "no tmpfs can be mounted here (neither root nor unshare -rm)"
    )
)
struct FullDiskTests {
    private let moments = Moments()
    private let upstream: LoopbackOrigin
    private let disk: SmallDisk
    private let sandbox: Sandbox

    init() throws {
        upstream = try LoopbackOrigin(passing: moments)
        disk = try SmallDisk("96m")
        sandbox = try Sandbox(
            upstream: upstream.base,
            front: .nginxWithModule,
            spool: disk.spool,
            launcher: disk.launcher
        )
    }

    private func expectFull(_ response: WireClient.Answer) {
        #expect(response.status == 507)
        #expect(response["content-type"] == "application/problem+json")
    }

    private func sendUntilAnswered(
        _ client: WireClient,
        _ content: Data
    ) throws -> WireClient.Answer {
        var position = 0
        while position < content.count {
            if client.isReadable {
                let response = try client.readAny()
                if response.status >= 200 { return response }
            }
            let next = min(position + (1 << 18), content.count)
            client.sendChunk(content[position..<next])
            position = next
        }
        return try client.read()
    }

    @Test(
        "in content: 507, HEAD reports the true offset, and the upload continues once there is room"
    )
    func inContent() throws {
        let (_, bytes) = try sandbox.randomFile(40 << 20)
        let resource = try sandbox.create("/files/large")
        let waiting = try sandbox.create("/files/waiting")
        try disk.leave(24 << 20, in: sandbox)
        let client = try sandbox.startAppend(resource, length: nil)
        expectFull(try sendUntilAnswered(client, bytes))
        let told = try sandbox.offset(of: resource)
        #expect(told <= 24 << 20)
        // Below the reserve an upload is refused before its content is read.
        try disk.leave(8 << 20, in: sandbox)
        for (method, size) in [("POST", 0), ("PUT", 5 << 20)] {
            let refused = try sandbox.open(
                method,
                "/files/refused",
                [
                    "Upload-Draft-Interop-Version: 10", "Upload-Complete: ?\(size > 0 ? 1 : 0)",
                    "Expect: 100-continue",
                ],
                length: size
            )
            expectFull(try refused.readAny())
        }
        #expect(try sandbox.offset(of: waiting) == 0)
        #expect(try sandbox.offset(of: resource) == told)
        try disk.leave(nil, in: sandbox)
        let rest = try sandbox.append(resource, offset: told, bytes.suffix(from: told))
        #expect(rest.status == 201)
        #expect(upstream.contents(to: "/files/large") == [bytes])
        let other = try sandbox.append(waiting, bytes.prefix(1_000))
        #expect(other.status == 201)
    }

    @Test("in a delivery: it continues, its client receives the response, and it is not repeated")
    func inDelivery() throws {
        let target = "/files/held?answer=200000"
        let (_, bytes) = try sandbox.randomFile(8 << 20)
        let resource = try sandbox.create(target)
        let waiting = try sandbox.create("/files/waiting")
        #expect(try sandbox.append(waiting, bytes.prefix(100_000), complete: false).status == 204)
        moments.begin(clients: 1)
        let sender = try sandbox.startAppend(resource, length: bytes.count)
        moments.lookOut(for: .delivered, holds: true)
        sender.send(bytes)
        // The upstream has the whole upload and waits; the spool has no room for its response.
        #expect(moments.waitForIt())
        try disk.leave(0, in: sandbox)
        #expect(try sandbox.offset(of: waiting) == 100_000)
        moments.goOn()
        let response = try sender.read()
        #expect(response.status == 201)
        #expect(response.content == LoopbackOrigin.response(to: target))
        let other = try sandbox.append(waiting, offset: 100_000)
        #expect(other.status == 201)
        try disk.leave(nil, in: sandbox)
        let again = try sandbox.append(resource, offset: bytes.count)
        #expect(again.status == 201)
        #expect(upstream.contents(to: target) == [bytes])
        #expect(upstream.contents(to: "/files/waiting") == [bytes.prefix(100_000)])
        #expect(try sandbox.create("/files/next").isEmpty == false)
    }
}
