// A machine with a spool, daemons, an upstream and clients.
//
// It is reused: each run begins with the same empty spool. Invariant: a crashed process changes neither the disk nor
// what a client has received.

import Foundation
import HTTPTypes
import Logging
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Synchronization
import Testing

@testable import SpoolgateDelivery
@testable import SpoolgateJournal
@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

/// A process crashed or a request failed, so the run cannot continue.
struct Stopped: Error {}

final class Daemon: Sendable {
    let process: Int
    let spool: Spool
    let gateway: Gateway

    init(process: Int, spool: Spool, gateway: Gateway) {
        self.process = process
        self.spool = spool
        self.gateway = gateway
    }
}

final class World {
    let machine: FaultyMachine
    let origin: Origin
    let beside = Beside()
    let directory: String
    private(set) var daemons: [Daemon] = []
    private(set) var clients: [UploadClient] = []
    private(set) var joiners: [JoiningClient] = []
    private(set) var hadPowerCut = false
    /// Whether the power failure could keep a part of a file without the rest.
    private(set) var mayBeTorn = false
    /// Whether a call fails in a process that continues.
    private(set) var hasError = false
    /// Whether data without a promise may be gone: after a power failure, or on a shared spool, where a node's death
    /// counts as one.
    var mayHaveLost: Bool { hadPowerCut || settings.sharesSpool }
    /// After a power failure, all earlier data is another writer's.
    private var powerCuts = 0
    private let complaints = Mutex<[String]>([])
    private var lastNumber = 0
    private let empty: DiskModel

    private var dropped: [String: [[UInt8]]] = [:]
    private(set) var isFreshMade = false
    private var freshUpload: (id: UploadID, told: Int64)?

    var settings = Settings()
    private var defaults = Settings()

    init() throws {
        directory = "\(ScratchDirectory.memory)/fault-test-\(UInt64.random(in: 0...(.max)))"
        try FileManager.default.createDirectory(
            atPath: directory,
            withIntermediateDirectories: true
        )
        origin = try Origin(directory: directory)
        machine = FaultyMachine(root: "\(directory)/machine")
        try FileManager.default.createDirectory(
            atPath: machine.root,
            withIntermediateDirectories: true
        )
        _ = try Self.openSpool(of: machine, as: machine.start(), writer: "0")
        // The directory was durable long before the run.
        empty = PowerCut(content: .kept, names: .kept, order: .journal).after(machine.model)
        var route = RouteSettings()
        route.upstream = UpstreamSettings(targets: [.unix(path: origin.target)])
        route.limits.minSize = 0
        route.maxResponseSize = 1000
        // Clients make one attempt after another.
        route.queue.maximumBackoff = .zero
        defaults.routes = [RouteSettings.defaultName: route]
        defaults.spoolReserve = 0
        defaults.interim.heartbeat = .zero
        defaults.interim.progressInterval = .seconds(3600)
        defaults.inUseTimeout = .seconds(60)
    }

    deinit { try? FileManager.default.removeItem(atPath: directory) }

    // MARK: A run

    func begin(
        _ fault: Fault?,
        at number: Int,
        _ adjust: (inout Settings) -> Void = { _ in }
    ) throws {
        origin.forget()
        end()
        try FileManager.default.createDirectory(
            atPath: drop,
            withIntermediateDirectories: true
        )
        hadPowerCut = false
        mayBeTorn = false
        hasError = fault?.isError == true
        settings = defaults
        adjust(&settings)
        if isDropping { settings.routes[RouteSettings.defaultName]?.upstream = dropUpstream }
        dropped = [:]
        isFreshMade = false
        try? FileManager.default.removeItem(atPath: fresh)
        complaints.withLock { $0 = [] }
        machine.repair()
        machine.begin(nil, at: 0, on: empty)
        // Files of the previous run.
        for name in ["clock", "wake", "purged"] { unlink("\(machine.root)/spool/\(name)") }
        try startDaemon()
        machine.begin(fault, at: number, on: machine.model)
    }

    func openSpool(as process: Int, named name: String = "spool") throws -> Spool {
        let node = settings.sharesSpool ? "n\(process)" : nil
        let spool = try Self.openSpool(
            of: machine,
            as: process,
            writer: "\(node.map { "\($0)." } ?? "")\(powerCuts)",
            node: node,
            named: name,
            quota: settings.spoolQuota,
            runInBackground: beside.run
        )
        // Like the program, which ends.
        spool.onFenced { [machine] _ in machine.kill(process) }
        return spool
    }

    private static func openSpool(
        of machine: FaultyMachine,
        as process: Int,
        writer: String,
        node: String? = nil,
        named name: String = "spool",
        quota: Int64 = 0,
        runInBackground: @escaping HelperThreads.Run = { $0() }
    ) throws -> Spool {
        try Spool(directory: "\(machine.root)/\(name)") { options in
            options.quota = quota == 0 ? nil : quota
            options.disk = machine.disk(of: process)
            options.clock = machine.clock
            options.node = node
            options.writer = writer
            options.runInBackground = runInBackground
            // A model of one host's disk knows every size at once.
            options.settling = .zero
        }
    }

    /// Like the program, it serves as soon as its entry is written, before the walk.
    @discardableResult
    func startDaemon() throws -> Daemon {
        letGoOfDead()
        let process = machine.start()
        let spool = try openSpool(as: process)
        try spool.enter()
        let gateway = Gateway(settings: settings, spool: spool, log: Log(Self.logger(origin)))
        let daemon = Daemon(process: process, spool: spool, gateway: gateway)
        daemons.append(daemon)
        return daemon
    }

    /// Releases the locks of crashed daemons, as the kernel does.
    private func letGoOfDead() {
        for daemon in daemons where machine.isDead(daemon.process) { daemon.spool.leave() }
    }

    func kill(_ daemon: Daemon) {
        machine.kill(daemon.process)
        letGoOfDead()
    }

    func walk(by daemon: Daemon) throws {
        letGoOfDead()
        daemon.spool.findsDead()
        try note(daemon.spool.recover(), of: daemon)
    }

    /// Walks while each client's upload is locked, then through those again.
    func walkBeside(by daemon: Daemon) throws {
        letGoOfDead()
        daemon.spool.findsDead()
        // Like HEAD, which repairs the upload it locks.
        let locked = clients.compactMap { client in
            client.identity.flatMap { UploadID($0) }.flatMap { try? daemon.spool.tryLock($0) }
        }
        let recovery = daemon.spool.recover()
        for upload in locked { upload.unlock() }
        try note(recovery, of: daemon)
        checkNames()
        try note(daemon.spool.recoverAgain(after: recovery), of: daemon)
    }

    private func note(_ recovery: Recovery, of daemon: Daemon) throws {
        if machine.isDead(daemon.process) { throw Stopped() }
        if recovery.corrupt != 0, !mayBeTorn {
            complain("the walk moved \(recovery.corrupt) to corrupt/")
        }
    }

    /// The daemon that clients reach.
    var daemon: Daemon { daemons[daemons.count - 1] }

    /// Ends all faults, and starts a daemon if none runs.
    func repair() throws {
        machine.repair()
        origin.setReachable(true)
        origin.open()
        let route = settings.routes[RouteSettings.defaultName] ?? RouteSettings()
        let sharesSpool = settings.sharesSpool
        settings = defaults
        settings.sharesSpool = sharesSpool
        var kept = defaults.routes[RouteSettings.defaultName] ?? RouteSettings()
        (kept.reply, kept.promise, kept.upstream) = (route.reply, route.promise, route.upstream)
        settings.routes[RouteSettings.defaultName] = kept
        // On a shared spool, another host continues.
        if sharesSpool, daemons.contains(where: { !machine.isDead($0.process) }) {
            letGoOfDead()
            daemons.removeAll { machine.isDead($0.process) }
        }
        if machine.isDead(daemon.process) { try startDaemon() } else { reload() }
        letGoOfDead()
        // A spool keeps dozens of directories open.
        daemons.removeAll { machine.isDead($0.process) }
    }

    func end() {
        for daemon in daemons { daemon.spool.leave() }
        beside.clear()
        daemons = []
        clients = []
        joiners = []
    }

    func reload() { daemon.gateway.reload(settings) }

    func client(
        _ method: HTTPMethod = .put,
        response: Origin.Answer = .short,
        version: Int = 10
    ) -> UploadClient {
        let client = UploadClient(self, method, response: response, version: version)
        clients.append(client)
        return client
    }

    func joiner(parts ends: [Int]) -> JoiningClient {
        let client = JoiningClient(self, parts: ends)
        joiners.append(client)
        return client
    }

    func nextNumber() -> Int {
        lastNumber += 1
        return lastNumber
    }

    func cutPower(_ cut: PowerCut) throws {
        hadPowerCut = true
        mayBeTorn = cut.content.mayTear
        let dropped = (try? FileManager.default.contentsOfDirectory(atPath: drop)) ?? []
        try machine.rebuild(after: cut, withLinks: dropped.map { "\(drop)/\($0)" })
        powerCuts += 1
        for client in clients { client.notePowerCut() }
        for client in joiners { client.notePowerCut() }
    }

    // MARK: The drop directory

    private var drop: String { "\(directory)/drop" }
    private var dropUpstream: UpstreamSettings {
        UpstreamSettings(targets: [.directory(path: drop)])
    }

    var isDropping: Bool {
        settings.routes[RouteSettings.defaultName]?.upstream.store?.directory != nil
    }

    /// Takes the dropped files, as a consumer does.
    func takeDrops() {
        guard isDropping else { return }
        let names = (try? FileManager.default.contentsOfDirectory(atPath: drop)) ?? []
        for record in names where record.hasSuffix(".json") && !record.hasPrefix(".") {
            let content = String(record.dropLast(".json".count))
            let bytes = FileManager.default.contents(atPath: "\(drop)/\(content)")
            dropped[String(content.prefix(26)), default: []].append(Array(bytes ?? Data()))
            for name in [content, record] { unlink("\(drop)/\(name)") }
        }
    }

    func got(_ number: Int, of client: UploadClient) -> [[UInt8]] {
        guard isDropping else { return origin.got(number) }
        takeDrops()
        return client.identities[number].map { dropped[$0] ?? [] } ?? []
    }

    // MARK: A new spool

    private var fresh: String { "\(machine.root)/fresh" }

    /// The new spool has an upload with an acknowledged offset.
    func makeFresh() throws {
        isFreshMade = true
        freshUpload = nil
        let process = machine.start()
        let spool = try openSpool(as: process, named: "fresh")
        try spool.enter()
        defer { spool.leave() }
        let id = UploadID.random()
        var creation = UploadCreation(
            id: id,
            route: RouteSettings.defaultName,
            head: RequestHead(method: .post, target: "/files"),
            created: .now
        )
        creation.resourcePath = "/files/\(id)"
        let upload = try spool.create(creation, requestRelease: {})
        defer { upload.unlock() }
        try upload.append(Array(UploadClient.content(1)[..<3000]).span.bytes)
        try upload.sync()
        if !machine.isDead(process) { freshUpload = (id, upload.durableOffset) }
    }

    /// Even if its creation was interrupted, the spool must be usable and have all acknowledged bytes.
    func checkFresh() throws {
        guard isFreshMade else { return }
        let spool = try openSpool(as: machine.start(), named: "fresh")
        try spool.enter()
        defer { spool.leave() }
        if let (id, told) = freshUpload {
            let upload = try spool.tryLock(id)
            if (upload?.state.offset ?? -1) < told {
                complain("a new spool has \(upload?.state.offset ?? -1) bytes after offset \(told)")
            }
            upload?.unlock()
        }
        _ = spool.recover()
        var all: [UploadSummary] = []
        try spool.forEachUpload { all.append($0) }
        try spool.remove(all) { _ in }
        let left = machine.model.paths.keys.filter {
            $0.hasPrefix("fresh/uploads") || $0.hasPrefix("fresh/queue")
        }
        if !left.isEmpty { complain("a new spool has \(left.sorted())") }
    }

    func removeOld() {
        for daemon in daemons where !settings.sharesSpool || !machine.isDead(daemon.process) {
            daemon.gateway.deliveries.removeOld(in: Retention.queues)
        }
    }

    // MARK: Failures

    func complain(_ text: String) { complaints.withLock { $0.append(text) } }

    var complaintsSoFar: [String] { complaints.withLock { $0 } }

    private static func logger(_ origin: Origin) -> Logger {
        var logger = Logger(label: "fault") { _ in GateOpener(origin: origin) }
        logger.logLevel = .error
        return logger
    }
}

/// Sends late responses after a logged failure, because no heartbeat follows it.
private struct GateOpener: LogHandler {
    let origin: Origin
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.error

    subscript(metadataKey key: String) -> Logger.MetadataValue? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) { origin.open() }
}
