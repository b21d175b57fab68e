// A real S3 store that checks every signature: Ceph's object gateway, with a monitor and a storage daemon in memory.

import Foundation
import SpoolgateTestSupport
import Testing

/// Any thread may use it once it is initialized.
final class ObjectGateway: @unchecked Sendable {
    static let keyID = "AKIDTEST"
    static let secret = "se/cr+et"
    private static let programs = [
        "radosgw", "radosgw-admin", "ceph", "ceph-mon", "ceph-osd", "monmaptool",
    ]
    static let isInstalled = programs.allSatisfy { Command.find($0) != nil }

    let directory: URL
    let port: Int
    let url: String
    private var daemons: [Daemon] = []
    private var settingsFile: String { directory.path() + "/ceph.conf" }
    private var log: URL { directory.appending(path: "log") }

    /// Starts all daemons, in about 10 s on an idle machine.
    init() throws {
        directory = FileManager.default.temporaryDirectory
            .appending(path: "ceph-\(UUID().uuidString.prefix(8))")
        for folder in ["mon", "osd", "run"] {
            try FileManager.default.createDirectory(
                at: directory.appending(path: folder),
                withIntermediateDirectories: true
            )
        }
        let ports = try FreePort.take(2)
        port = ports[1]
        url = "http://127.0.0.1:\(port)"
        let cluster = UUID().uuidString.lowercased()
        let monitor = "v2:127.0.0.1:\(ports[0])"
        try Self.settings(directory.path(), cluster: cluster, monitor: monitor, port: port)
            .write(toFile: settingsFile, atomically: true, encoding: .utf8)
        let map = directory.path() + "/monmap"
        try run("monmaptool", "--create", "--addv", "a", "[\(monitor)]", "--fsid", cluster, map)
        try run("ceph-mon", "-i", "a", "--mkfs", "--monmap", map)
        try start("ceph-mon", "-i", "a")
        try run("ceph", "osd", "create")
        try run("ceph-osd", "-i", "0", "--mkfs")
        try start("ceph-osd", "-i", "0")
        try run(
            "radosgw-admin",
            "user",
            "create",
            "--uid=test",
            "--display-name=test",
            "--access-key=\(Self.keyID)",
            "--secret-key=\(Self.secret)"
        )
        try start("radosgw", "-n", "client.admin")
    }

    /// Creates a bucket once the store accepts requests.
    func bucket(_ name: String) throws -> StoreBucket {
        try eventually("the bucket is created") {
            (try? ask("PUT", "/\(name)", "-o", "/dev/null", "-w", "%{http_code}")) == "200"
        }
        return StoreBucket(store: self, name: name)
    }

    deinit {
        for daemon in daemons.reversed() {
            daemon.signal(SIGKILL)
            _ = daemon.wait()
        }
        try? FileManager.default.removeItem(at: directory)
    }

    private func run(_ program: String, _ arguments: String...) throws {
        let command = try Command(
            Command.find(program) ?? program,
            ["--conf", settingsFile] + arguments
        )
        guard command.status == 0 else {
            throw NeverHappened(description: "\(program) \(arguments): \(command.errors)")
        }
    }

    private func start(_ program: String, _ arguments: String...) throws {
        daemons.append(
            try Daemon(
                Command.find(program) ?? program,
                ["--conf", settingsFile, "-f"] + arguments,
                log: log
            )
        )
    }

    /// The output of a request signed by curl.
    @discardableResult
    func ask(_ method: String, _ path: String, _ arguments: String...) throws -> String {
        try Command(
            Command.find("curl") ?? "curl",
            [
                "-sS", "--max-time", "120", "--path-as-is", "-X", method, "--aws-sigv4",
                "aws:amz:us-east-1:s3", "-u", "\(Self.keyID):\(Self.secret)", "-H",
                "x-amz-content-sha256: UNSIGNED-PAYLOAD", url + path,
            ] + arguments
        ).output
    }

    private static func settings(
        _ directory: String,
        cluster: String,
        monitor: String,
        port: Int
    ) -> String {
        """
        [global]
        fsid = \(cluster)
        mon host = \(monitor)/0
        auth cluster required = none
        auth service required = none
        auth client required = none
        # Without keys there is nothing to encrypt with.
        ms mon client mode = crc
        ms bind msgr1 = false
        # Apart from those of FreePort.
        ms bind port min = 14000
        ms bind port max = 14999
        public addr = 127.0.0.1
        mon allow pool size one = true
        osd pool default size = 1
        osd pool default min size = 1
        osd pool default pg num = 1
        osd pool default pgp num = 1
        osd pool default pg autoscale mode = off
        mon max pg per osd = 1000
        osd crush chooseleaf type = 0
        run dir = \(directory)/run
        admin socket = \(directory)/run/$name.$pid.asok
        pid file = \(directory)/run/$name.pid
        log file = \(directory)/run/$name.log
        mon data = \(directory)/mon
        mon data avail crit = 1
        mon initial members = a
        osd data = \(directory)/osd
        osd objectstore = memstore
        memstore device bytes = 2147483648
        osd op num shards = 1
        osd op num threads per shard = 2
        [mon.a]
        public addrv = \(monitor)/0
        [client]
        rgw frontends = beast endpoint=127.0.0.1:\(port)
        rgw dns name = localhost
        rgw thread pool size = 16
        rgw run sync thread = false
        rgw enable gc threads = false
        rgw enable lc threads = false
        rgw override bucket index max shards = 1

        """
    }
}

struct StoreBucket {
    let store: ObjectGateway
    let name: String
    var url: String { "\(store.url)/\(name)" }

    func keys() throws -> [String] {
        try store.ask("GET", "/\(name)").matches(of: /<Key>([^<]*)<\/Key>/).map { String($0.1) }
    }

    /// An object's content; the key must be percent-encoded.
    func content(_ key: String) throws -> Data {
        let file = try ScratchDirectory()
        let path = file.file("got")
        try store.ask("GET", "/\(name)/\(key)", "-o", path)
        return try Data(contentsOf: URL(filePath: path))
    }

    /// An object's fields, in lower case.
    func fields(_ key: String) throws -> String {
        try store.ask("HEAD", "/\(name)/\(key)", "-I").lowercased()
    }

    /// The number of multipart uploads neither completed nor removed.
    func begun() throws -> Int {
        try store.ask("GET", "/\(name)?uploads=").matches(of: /<UploadId>/).count
    }
}

struct SharedStore: SuiteTrait, TestScoping {
    @TaskLocal private static var store: ObjectGateway?

    func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing function: @Sendable () async throws -> Void
    ) async throws {
        try await Self.$store.withValue(try ObjectGateway()) { try await function() }
    }

    static func bucket(_ name: String) throws -> StoreBucket {
        try #require(store).bucket(name)
    }
}

extension Trait where Self == SharedStore {
    static var sharedStore: Self { Self() }
}
