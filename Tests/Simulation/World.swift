// One world: a machine with a spool, a daemon, services, clients and an operator, as one plan decides.
//
// The driver makes one step at a time. Requests run in their own threads, and wait where the driver can continue them: at
// a client that pauses, or at a service that is slow. Invariant: after each step, every thread waits there or is idle,
// unless the machine is too busy to tell.

import Foundation
import HTTPTypes
import Logging
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream

@testable import SpoolgateDelivery
@testable import SpoolgateJournal
@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

final class Daemon {
    let process: Int
    let spool: Spool
    let gateway: Gateway
    /// nil without real sockets.
    let front: Front?
    /// All its threads have ended.
    var hasEnded = false
    private let isWatching = Monitor(true)

    init(process: Int, spool: Spool, gateway: Gateway, front: Front?) throws {
        self.process = process
        self.spool = spool
        self.gateway = gateway
        self.front = front
        // As `serve` does, and more often.
        try SpoolgatePosix.Thread.start(name: "spool-watch", stackSize: 1 << 18) {
            [spool, gateway, isWatching] in
            while isWatching.updateQuietly({ $0 }) {
                try? spool.requestReleaseForOthers()
                if spool.isWoken() { gateway.deliveries.noteChangedSpool() }
                _ = isWatching.wait(until: .after(.milliseconds(10)), isQuiet: true) {
                    $0 ? nil : true
                }
            }
        }
    }

    func stopWatching() { isWatching.update { $0 = false } }
}

final class World {
    let plan: Plan
    let machine: Machine
    let ledger = Ledger()
    /// By route.
    let upstreams: [Service]
    let authorizer: Service?
    /// nil if no upstream is a directory.
    let consumer: Consumer?
    private(set) var clients: [Client] = []
    /// All use one spool.
    private(set) var daemons: [Daemon] = []
    /// What the daemons that have ended reported.
    let reports = Reports()
    /// The number of the daemon to which the web server sends the next request.
    private var turn = 0
    private(set) var calls: [(call: Call, client: Client)] = []
    var acceptsAtOnce: Bool
    private var lastNumber = 0
    private var away: Set<String> = []
    private var settings: Settings
    /// Whether records look empty.
    let hiding = Monitor(false)

    init(_ plan: Plan) throws {
        self.plan = plan
        acceptsAtOnce = plan.acceptsAtOnce
        machine = try Machine()
        upstreams = try (0..<plan.routes).map { [machine, ledger] in
            try Service(Self.name(ofUpstream: $0), on: machine, ledger, hasName: plan.namesServices)
        }
        authorizer =
            plan.hasAuthorizer
            ? try Service(
                "authorizer",
                on: machine,
                ledger,
                hasName: plan.namesServices,
                isAuthorizer: true
            ) : nil
        if plan.checksTokens {
            for service in upstreams { service.checkTokens() }
            authorizer?.checkTokens()
        }
        if plan.hasAuthorizer { for upstream in upstreams { upstream.expectUser() } }
        consumer = try plan.directory.map { [machine, ledger, upstreams] in
            try Consumer(upstreams[$0], on: machine, ledger, plan)
        }
        settings = try Self.settings(plan, upstreams, authorizer, machine)
        if let consumer, let route = plan.directory {
            let name = Self.name(ofRoute: route) ?? RouteSettings.defaultName
            settings.routes[name]?.upstream.targets = [.directory(path: consumer.directory)]
        }
        if plan.hasInspection {
            try "0\n".write(toFile: Self.result(machine), atomically: true, encoding: .utf8)
            let log = Self.inspected(machine)
            for upstream in upstreams { upstream.readInspections(log) }
        }
        daemons = try (0..<plan.daemons).map { [machine, settings] _ in
            try Self.startDaemon(plan, machine, settings)
        }
        ledger.setLifetime(Self.lifetime)
        ledger.honoursKeys(plan.honoursKeys)
        clients = plan.clients.enumerated().map { Client($1, $0, self) }
    }

    static func name(ofUpstream route: Int) -> String { "upstream\(route)" }

    /// nil for the default route.
    static func name(ofRoute route: Int) -> String? { route == 0 ? nil : "route\(route)" }

    /// The daemon to which the web server sends the next request.
    var daemon: Daemon { daemons[turn % daemons.count] }

    /// Sends the next request to another daemon, if there are two.
    func takeTurns() { turn += 1 }

    var services: [Service] { upstreams + (authorizer.map { [$0] } ?? []) }

    private func services(of client: Client) -> [Service] {
        [upstreams[client.route]] + (authorizer.map { [$0] } ?? [])
    }

    /// How long a partial upload is kept without a request, in seconds.
    private static let lifetime: Int64 = 86_400

    private static func result(_ machine: Machine) -> String { "\(machine.root)/verdict" }

    /// One line for each run of the inspection: the upload's number and the exit status.
    private static func inspected(_ machine: Machine) -> String { "\(machine.root)/inspected" }

    private static func settings(
        _ plan: Plan,
        _ upstreams: [Service],
        _ authorizer: Service?,
        _ machine: Machine
    ) throws -> Settings {
        var settings = Settings()
        for (number, upstream) in upstreams.enumerated() {
            settings.routes[name(ofRoute: number) ?? RouteSettings.defaultName] =
                try route(plan, upstream, authorizer, machine)
        }
        settings.spoolReserve = 0
        // So few that one target could take all.
        settings.maximumDeliveries = 3
        settings.inUseTimeout = .seconds(1)
        settings.queueRunInterval = .seconds(3600)
        settings.interim.heartbeat = plan.hasHeartbeat ? .nanoseconds(1) : .zero
        settings.interim.progressInterval = plan.hasProgress ? .zero : .seconds(3600)
        if plan.hasProgress { settings.interim.progressSize = 1 }
        settings.correlationField = .sim("X-Upload")
        return settings
    }

    private static func route(
        _ plan: Plan,
        _ upstream: Service,
        _ authorizer: Service?,
        _ machine: Machine
    ) throws -> RouteSettings {
        var route = RouteSettings()
        route.upstream = UpstreamSettings(
            targets: [upstream.target],
            connectTimeout: .seconds(5),
            stallTimeout: .seconds(20),
            responseTimeout: .seconds(20)
        )
        route.limits.minSize = 0
        route.limits.maxAge = lifetime
        route.reply = plan.acceptsAtOnce ? .accepted : .upstream
        route.promise = plan.survivesPowerFailure ? .powerCut : .process
        route.honoursIdempotencyKey = plan.honoursKeys
        // Less than one manner of services sends.
        route.maxResponseSize = 1000
        if let authorizer {
            let separator = plan.namesServices ? "" : ":"
            route.authorization.url =
                try ServiceURL("\(authorizer.target.text)\(separator)/check")
        }
        if plan.hasInspection {
            let script =
                "read v < \(result(machine)); echo ${SPOOLGATE_TARGET#*\\?} $v >> \(inspected(machine)); exit $v"
            route.inspection.command = ["/bin/sh", "-c", script, "inspect"]
        }
        return route
    }

    // MARK: Daemons

    private static func openSpool(
        _ plan: Plan,
        _ machine: Machine,
        as process: Int,
        boot: String? = nil
    ) throws -> Spool {
        try Spool(directory: "\(machine.root)/spool") { options in
            options.disk = machine.disk(of: process)
            options.clock = machine.clock
            options.node = plan.sharesSpool ? "n\(process)" : nil
            options.writer = plan.sharesSpool ? nil : boot ?? machine.boot
            options.runInBackground = { $0() }
        }
    }

    /// Each process has its own file of events.
    private static func own(_ settings: Settings, of process: Int, _ machine: Machine) -> Settings {
        var settings = settings
        settings.events.destination = .file("\(machine.root)/events-\(process)")
        return settings
    }

    private static func startDaemon(
        _ plan: Plan,
        _ machine: Machine,
        _ settings: Settings
    ) throws -> Daemon {
        let process = machine.start()
        let settings = own(settings, of: process, machine)
        let spool = try openSpool(plan, machine, as: process)
        try spool.enter()
        let log = Log(Logger(label: "simulation", factory: Self.handler))
        let gateway = Gateway(settings: settings, spool: spool, log: log)
        try gateway.deliveries.startQueue()
        let front = try WebServer.shared?.startFront(gateway) { machine.isDead(process) }
        return try Daemon(process: process, spool: spool, gateway: gateway, front: front)
    }

    /// The replay of a seed shows the log of its daemons.
    private static func handler(_ label: String) -> any LogHandler {
        let isReplay = ProcessInfo.processInfo.environment["SIMULATION_SEED"] != nil
        return isReplay
            ? StreamLogHandler.standardOutput(label: label) : SwiftLogNoOpLogHandler(label)
    }

    /// `boot` is what the process sees as the identity of the boot; nil for the true one.
    func openCommandSpool(boot: String? = nil) throws -> Spool {
        try Self.openSpool(plan, machine, as: machine.start(), boot: boot)
    }

    /// Ends what the driver has made worse.
    func beWell() throws {
        away = []
        for service in services { service.beWell() }
        if plan.hasInspection {
            try "0\n".write(toFile: Self.result(machine), atomically: true, encoding: .utf8)
        }
    }

    /// Longer than all pauses, when all is well.
    func passLong() {
        // The pause after an attempt that is due, or under way with its checks, would only begin afterwards.
        _ = machine.wait(.seconds(20)) {
            let all = try? summaries(daemon.spool)
            if all?.allSatisfy({ !mayBeAttempted($0) }) == true { return true }
            // After an error of the disk, an attempt waits longer than its record says.
            for daemon in daemons { daemon.gateway.deliveries.runQueue() }
            return false
        }
        machine.pass(4000)
        ledger.pass(4000)
        tick(quiet: .milliseconds(40))
    }

    /// Whether the queue makes an attempt now, or is about to.
    private func mayBeAttempted(_ summary: UploadSummary) -> Bool {
        if summary.queue == .active { return true }
        guard summary.queue == .deferred else { return false }
        return summary.isInUse || summary.nextAttempt.map { $0 <= machine.clock.now } ?? false
    }

    func nextNumber() -> Int {
        lastNumber += 1
        return lastNumber
    }

    /// A daemon crashes, or the power fails, and others start.
    private func crash(losingPower seed: UInt64? = nil) throws {
        ledger.tell(seed == nil ? "a daemon crashes and starts again" : "the power fails")
        awaitRecords()
        let victims = seed == nil ? [daemon] : daemons
        for victim in victims { machine.kill(victim.process) }
        ledger.hasTrouble()
        ledger.crashed()
        try end(victims)
        ledger.crashed()
        if let seed {
            try machine.cutPower(seed)
            consumer?.survive(isKept: plan.survivesPowerFailure)
            ledger.lostPower(isKept: plan.survivesPowerFailure)
        } else if plan.sharesSpool {
            try hideRecords(of: victims[0])
        }
        try startAgain(victims)
    }

    private func restart() throws {
        ledger.tell("a daemon stops and starts again")
        let victim = daemon
        if try stop(victim) { try startAgain([victim]) } else { try crash() }
    }

    /// The machine starts again in an orderly way.
    private func reboot(_ seed: UInt64) throws {
        ledger.tell("the machine is restarted")
        let victims = daemons
        for victim in victims {
            guard try !machine.isFull && stop(victim) else { return try crash(losingPower: seed) }
        }
        awaitRecords()
        // Nothing is lost that was not durable.
        try machine.cutPower(seed)
        // The spool syncs what is its own.
        consumer?.survive(isKept: plan.survivesPowerFailure)
        try startAgain(victims)
    }

    /// SIGTERM: as `serve` does, a daemon releases its uploads, lets the rest end, makes them durable, and leaves the
    /// spool; false if a request does not end in time.
    private func stop(_ victim: Daemon) throws -> Bool {
        _ = victim.gateway.deliveries.stopQueue(until: .after(.zero))
        victim.spool.requestReleaseOfAll()
        for service in services { service.open() }
        // A client that pauses outside of an upload resource keeps its request until the deadline.
        _ = victim.front?.drain(.seconds(1)) { victim.spool.requestReleaseOfAll() }
        let isDrained = machine.wait(.seconds(1)) {
            calls.allSatisfy { $0.call.process != victim.process || $0.call.exchange.isOver }
        }
        noteCalls()
        if !isDrained { return false }
        // What a full disk could not store is forgotten.
        if machine.isFull { ledger.crashed() }
        try end([victim]) { try? $0.makeAllDurable() }
        // Its upkeep thread ends with it.
        machine.kill(victim.process)
        return true
    }

    private func startAgain(_ victims: [Daemon]) throws {
        // A daemon does not start on a full disk.
        setDiskFull(false)
        for victim in victims {
            guard let index = daemons.firstIndex(where: { $0 === victim }) else { continue }
            daemons[index] = try Self.startDaemon(plan, machine, settings)
        }
        tick()
    }

    /// Waits until all threads of the daemons have ended.
    private func end(_ victims: [Daemon], beforeLeaving: (Spool) -> Void = { _ in }) throws {
        let processes = Set(victims.map(\.process))
        let theirs = calls.filter { processes.contains($0.call.process) }
        for (call, _) in theirs { call.exchange.hangUp() }
        for service in services { service.open() }
        let areOver = machine.wait(.seconds(20)) { theirs.allSatisfy { $0.call.exchange.isOver } }
        if !areOver { ledger.complain(5, "requests do not end after their clients have left") }
        noteCalls()
        for victim in victims where !victim.hasEnded {
            victim.hasEnded = true
            victim.stopWatching()
            if victim.gateway.deliveries.stopQueue(until: .after(.seconds(20))) != 0 {
                ledger.complain(5, "deliveries do not end")
            }
            consumer?.look()
            beforeLeaving(victim.spool)
            // As `serve` does, it leaves a recovery that has not ended to the next start.
            if victim.spool.isAfterDeath { machine.kill(victim.process) }
            victim.spool.leave()
            for fault in victim.front?.close() ?? [] { ledger.complain(3, fault) }
            reports.add(victim.gateway.metrics)
        }
    }

    // MARK: The run

    /// Returns the broken laws.
    func run() throws -> [String] {
        defer { for service in services { service.stop() } }
        if plan.hasTwinStart { try startTwins() }
        for step in plan.steps {
            try perform(step)
            noteCalls()
            if !ledger.hasComplaints { checkList() }
            if ledger.hasComplaints { break }
        }
        if ledger.complaints.isEmpty { try finish() }
        for daemon in daemons where !machine.isDead(daemon.process) { machine.kill(daemon.process) }
        try end(daemons)
        if ledger.complaints.isEmpty {
            try checkReports()
            try checkFiles()
        }
        return ledger.complaints
    }

    private func perform(_ step: Step) throws {
        var random = SplitMix(seed: step.draw)
        if daemons.count > 1 { turn = random.next(daemons.count) }
        // The daemon has dropped a file and not noted it.
        if let consumer, consumer.service.isSlow, random.once(in: 2) {
            return try change(consumer, &random)
        }
        switch step.actor {
        case .client(let index): act(clients[index], &random)
        case .upstream(let route):
            if let consumer, plan.directory == route { return try change(consumer, &random) }
            change(upstreams[route], &random)
        case .authorizer: if let authorizer { change(authorizer, &random) }
        case .inspection: try changeVerdict(&random)
        case .operator_: try operate(&random)
        case .machine: try changeMachine(&random)
        case .time: passTime(&random)
        }
    }

    // MARK: Services

    private func change(_ consumer: Consumer, _ random: inout SplitMix) throws {
        let service = consumer.service
        let draw = random.next(6)
        if draw < 2 { return consumer.finish(&random) }
        guard service.isSlow else {
            let times = 1 + random.next(4)
            ledger.tell("\(service.name): the daemon pauses after \(times) drops")
            return service.behave(.slow, times: times)
        }
        if draw > 2 { return try crash(losingPower: random.next()) }
        ledger.tell("\(service.name): the daemon goes on")
        service.open()
        settle()
    }

    private func change(_ service: Service, _ random: inout SplitMix) {
        if service.isSlow {
            ledger.tell("\(service.name) answers")
            service.open()
            return settle()
        }
        if random.once(in: 12) {
            let isAway = away.insert(service.name).inserted
            if !isAway { away.remove(service.name) }
            ledger.tell("\(service.name) is \(isAway ? "away" : "back")")
            ledger.hasTrouble()
            service.setAway(isAway)
            return
        }
        if plan.checksTokens, random.once(in: 5) {
            let client = random.one(from: clients)
            ledger.tell("\(service.name) lets the token \(client.token) expire")
            return service.expire(client.token)
        }
        let manner = random.one(from: Manner.allCases)
        let times = manner == .slow && plan.routes > 1 ? 9 : 1 + random.next(4)
        ledger.tell("\(service.name): \(times) x \(manner.rawValue)")
        service.behave(manner, times: times)
    }

    private func changeVerdict(_ random: inout SplitMix) throws {
        let code = random.next(3)
        ledger.tell("the inspection exits with \(code)")
        if code == 1 { ledger.inspectionRefuses() }
        try "\(code)\n".write(toFile: Self.result(machine), atomically: true, encoding: .utf8)
    }

    // MARK: Time and the machine

    private func passTime(_ random: inout SplitMix) {
        let spans = [1, 5, 20, 90, 600, Self.lifetime * 2 / 3, Self.lifetime * 2]
        let seconds = spans[random.next(spans.count)]
        ledger.tell("\(seconds) s pass")
        machine.pass(seconds)
        ledger.pass(seconds)
        tick()
        if seconds > Self.lifetime { daemon.gateway.deliveries.removeOld(in: Retention.queues) }
    }

    /// The operator changes settings that change no outcome, or learns that the application ignores keys.
    func reload(ignoresKeys: Bool) {
        if ignoresKeys {
            for name in settings.routes.keys {
                settings.routes[name]?.honoursIdempotencyKey = false
            }
            ledger.honoursKeys(false)
        }
        settings.interim.heartbeat = settings.interim.heartbeat == .zero ? .nanoseconds(1) : .zero
        settings.inUseTimeout = settings.inUseTimeout == .seconds(1) ? .seconds(2) : .seconds(1)
        ledger.tell("operator: reload\(ignoresKeys ? ", and keys are ignored from now on" : "")")
        for daemon in daemons {
            daemon.gateway.reload(Self.own(settings, of: daemon.process, machine))
        }
    }

    /// Lets the queue see the time.
    private func tick(quiet: Duration = .milliseconds(8)) {
        let path = "\(machine.root)/spool/queue"
        let names = (try? FileManager.default.contentsOfDirectory(atPath: path)) ?? []
        guard !names.isEmpty else { return }
        for daemon in daemons {
            let runs = daemon.gateway.metrics.queueRuns
            let before = runs.count
            daemon.gateway.deliveries.runQueue()
            _ = machine.wait(.seconds(5)) { runs.count > before }
        }
        machine.settle(quiet: quiet) { false }
        noteCalls()
    }

    private func changeMachine(_ random: inout SplitMix) throws {
        switch random.next(8) {
        case 0, 1: try crash()
        case 6: try restart()
        case 7: try reboot(random.next())
        case 2: try crash(losingPower: random.next())
        case 3:
            // What an attempt has learned is stored before the disk is full.
            _ = machine.wait(.seconds(20)) {
                let all = try? summaries(daemon.spool)
                return isServiceSlow || all?.allSatisfy { $0.queue != .active } ?? false
            }
            setDiskFull(!machine.isFull)
            ledger.tell("the disk \(machine.isFull ? "is full" : "has room")")
            ledger.hasTrouble()
        case 4:
            let seconds = Int64([-3600, -60, 60, 3600, 86_400][random.next(5)])
            ledger.tell("the clock is set by \(seconds) s")
            machine.setClock(by: seconds)
            ledger.setClock(by: seconds)
        default: passTime(&random)
        }
    }

    func setDiskFull(_ isFull: Bool) {
        machine.setFull(isFull)
        ledger.setDiskFull(isFull)
    }

    // MARK: Clients

    func start(_ call: Call, of client: Client) {
        let before = ledger.upload(call.upload.number)
        let exchange = call.exchange
        calls.append((call, client))
        exchange.start(with: daemon.gateway)
        machine.settle { exchange.isOver || exchange.isStuck || isServiceSlow }
        checkIsNotDelayed(call, of: client)
        checkTakesOver(call)
        noteCalls()
        if let before, !before.isAccepted { checkIsDelivered(before, of: client) }
    }

    /// A client that comes back is not turned away because of its own request that pauses.
    private func checkTakesOver(_ call: Call) {
        let others = calls.filter { $0.call.upload === call.upload && $0.call !== call }
        guard call.exchange.isOver, call.isInUse else { return }
        if others.contains(where: { $0.call.exchange.isStuck }) {
            ledger.complain(5, "upload \(call.upload.number) is kept from its own client")
        }
    }

    /// An upload that was just accepted is delivered at once, if its own services are well.
    private func checkIsDelivered(_ before: Ledger.Upload, of client: Client) {
        let number = before.number
        guard ledger.upload(number)?.isAccepted == true, !plan.hasInspection, !machine.isFull,
            away.isEmpty
        else { return }
        let own = services(of: client)
        let tokens = ledger.upload(number)?.tokens ?? []
        guard own.allSatisfy({ service in tokens.allSatisfy { service.isWell(for: $0) } }) else {
            return
        }
        let isDelivered = machine.wait(.seconds(15)) {
            consumer?.look()
            return ledger.upload(number).map {
                $0.receptions > 0 || $0.isExcused
                    || $0.meanings.dropFirst(before.meanings.count).contains { $0 != .success }
            } ?? true
        }
        if !isDelivered { ledger.complain(5, "upload \(number) waits, although all is well") }
    }

    /// A request waits for its client and for its own services, and not for those of another route.
    private func checkIsNotDelayed(_ call: Call, of client: Client) {
        let own = services(of: client)
        let exchange = call.exchange
        let isFree = machine.wait(.seconds(15)) {
            exchange.isOver || exchange.isStuck || own.contains { $0.isSlow }
        }
        if !isFree {
            ledger.complain(5, "a request of \(client.name) waits, but not for its own services")
        }
    }

    /// Whether a service can be reached by kept connections only.
    var isServiceAway: Bool { !away.isEmpty }

    private var isServiceSlow: Bool { services.contains { $0.isSlow } }

    /// Waits until all requests are over or wait for the driver.
    func settle() {
        machine.settle {
            calls.allSatisfy { $0.call.exchange.isOver || $0.call.exchange.isStuck }
        }
        noteCalls()
    }

    func noteCalls() {
        let over = calls.filter { $0.call.exchange.isOver }
        calls.removeAll { call, _ in over.contains { $0.call === call } }
        consumer?.look()
        for (call, client) in over { client.note(call) }
    }

    private func call(of client: Client) -> Call? {
        calls.last { $0.client === client }?.call
    }

    private func act(_ client: Client, _ random: inout SplitMix) {
        if plan.namesOwners, random.once(in: 8) { return intrude(client, &random) }
        if client.isFaithful { return goOn(faithfully: client, &random) }
        if let call = call(of: client), random.next(3) != 0 {
            return goOn(call, client, &random)
        }
        guard let upload = client.current, upload.hasEnded == false || random.next(3) == 0 else {
            return create(client, &random)
        }
        guard upload.location != nil, client.speech != .ordinary else {
            return create(client, &random)
        }
        let length = upload.content.count
        switch random.next(12) {
        case 0, 1, 2:
            start(client.request(.retrieval, upload), of: client)
        case 3:
            client.renewToken()
            start(client.request(.retrieval, upload), of: client)
        case 4:
            let wrong = random.next(length + 1)
            append(upload, client, from: wrong, &random)
        case 5 where random.once(in: 2):
            start(client.request(.cancellation, upload), of: client)
        case 6 where random.once(in: 3):
            upload.isGivenUp = true
            create(client, &random)
        default:
            append(upload, client, from: min(upload.offset ?? 0, length), &random)
        }
    }

    private func goOn(_ call: Call, _ client: Client, _ random: inout SplitMix) {
        guard call.exchange.isStuck, random.next(4) != 0 else {
            ledger.tell("\(client.name) hangs up")
            call.exchange.hangUp()
            return settle()
        }
        let end: WebExchange.End = random.once(in: 3) ? .cut : .proper
        ledger.tell("\(client.name) \(end == .cut ? "is cut" : "goes on")")
        if end == .proper {
            let isEnd = call.isComplete && call.end == call.upload.content.count
            let part = call.end - call.rest.count..<call.end
            ledger.sends(call.upload.number, part, isEnd: isEnd, call.token)
            call.exchange.goOn(with: call.rest, end)
        } else {
            call.exchange.goOn(with: [], end)
        }
        let exchange = call.exchange
        machine.settle { exchange.isOver || isServiceSlow }
        noteCalls()
    }

    private func intrude(_ client: Client, _ random: inout SplitMix) {
        let others = clients.filter { $0 !== client }.flatMap(\.uploads)
        let known = others.compactMap { upload in upload.location.map { (upload, $0) } }
        // nginx names an owner only after it has checked a password.
        guard !known.isEmpty, WebServer.shared == nil else { return }
        let (upload, location) = random.one(from: known)
        client.intrude(on: upload, at: location, random.once(in: 2) ? .head : .delete)
    }

    /// The next request of a client that follows its protocol.
    private func goOn(faithfully client: Client, _ random: inout SplitMix) {
        if let call = call(of: client) { return goOn(call, client, &random) }
        guard let upload = client.current, !upload.hasEnded, upload.location != nil else {
            return create(client, &random)
        }
        if upload.needsToken { client.renewToken() }
        guard let offset = upload.offset, upload.isOffsetCurrent else {
            return start(client.request(.retrieval, upload), of: client)
        }
        upload.isOffsetCurrent = false
        let end = upload.content.count
        send(.append, upload, client, from: min(offset, end), to: end, true, &random)
    }

    private func create(_ client: Client, _ random: inout SplitMix) {
        // Several at once, which share the slots for deliveries.
        if acceptsAtOnce, random.once(in: 5) {
            for _ in 0..<3 {
                let upload = client.newUpload(size: 700)
                let call = client.request(.creation, upload, to: 700, isComplete: true)
                start(call, of: client)
            }
        }
        let sizes = [0, 1, 700, 9001, 9001, 20_000]
        let upload = client.newUpload(size: sizes[random.next(sizes.count)])
        let length = upload.content.count
        let isComplete = client.speech == .ordinary || random.once(in: 2)
        var end = isComplete ? length : random.next(length + 1)
        // Without content, many tus clients create first.
        if client.speech == .tus, !isComplete, random.once(in: 2) { end = 0 }
        send(.creation, upload, client, from: 0, to: end, isComplete, &random)
    }

    private func append(
        _ upload: ClientUpload,
        _ client: Client,
        from: Int,
        _ random: inout SplitMix
    ) {
        let length = upload.content.count
        let isComplete = random.next(3) != 0
        let end = isComplete ? length : from + random.next(length - from + 1)
        send(.append, upload, client, from: from, to: end, isComplete, &random)
    }

    private func send(
        _ purpose: Call.Purpose,
        _ upload: ClientUpload,
        _ client: Client,
        from: Int,
        to end: Int,
        _ isComplete: Bool,
        _ random: inout SplitMix
    ) {
        let fates: [WebExchange.End] = [.proper, .proper, .proper, .cut, .stuck]
        let fate = fates[random.next(fates.count)]
        let length = upload.content.count
        let isComplete =
            client.speech.takesOffsetForSuccess
            ? end == length && !(client.speech.mayNotSayEnd && upload.isStream) : isComplete
        let arriving = fate == .proper ? Int.max : random.next(end - from + 1)
        start(
            client.request(
                purpose,
                upload,
                from: from,
                to: end,
                isComplete: isComplete,
                arriving: arriving,
                then: fate,
                isLengthKnown: client.speech == .ordinary || length == 0 || random.next(4) != 0
            ),
            of: client
        )
    }
}
