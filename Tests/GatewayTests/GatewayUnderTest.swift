// A gateway with a real spool and a real upstream, for one test.
//
// Only the web server (`ScriptedExchange`) and the check before each disk call, which can refuse it, are fakes.
// Invariant: a test fails if a response breaks a web server's rules.

import Foundation
import HTTPTypes
import Logging
@testable import SpoolgateDelivery
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateJournal
@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

final class GatewayUnderTest: Sendable {
    let root: String
    let spool: Spool
    let gateway: Gateway
    let disk = WatchedDisk()
    let log = LogLines()
    /// The present, for the rates of content; it advances only if a test changes it.
    let contentClock = Monitor(Deadline.after(.zero))

    var events: String { "\(root)/events" }

    var delivered: String { "\(root)/delivered" }

    /// In an inspection's command, ROOT means the gateway's directory; side jobs run at once unless `jobs` holds them.
    init(
        _ target: UpstreamTarget? = nil,
        reserve: Int64 = 0,
        quota: Int64? = nil,
        clock: SystemClock = SystemClock(),
        tellsEvents: Bool = false,
        holding jobs: HeldJobs? = nil,
        sharedNode: String? = nil,
        _ change: (inout Settings, inout RouteSettings) -> Void = { _, _ in }
    ) throws {
        let name = "gateway-test-\(UInt64.random(in: 0...(.max)))"
        root = "\(ScratchDirectory.memory)/\(name)"
        try FileManager.default.createDirectory(
            atPath: "\(root)/delivered",
            withIntermediateDirectories: true
        )
        var settings = Settings()
        settings.spoolReserve = reserve
        var route = RouteSettings()
        route.upstream.targets = [target ?? .directory(path: "\(root)/delivered")]
        route.limits.minSize = 0
        if tellsEvents { settings.events.destination = .file("\(root)/events") }
        change(&settings, &route)
        route.inspection.command = route.inspection.command.map { [root] in
            $0.replacing("ROOT", with: root)
        }
        settings.routes[RouteSettings.defaultName] = route
        spool = try Spool(directory: "\(root)/spool") { [disk] options in
            options.reserve = reserve
            options.quota = quota
            options.disk = disk.disk
            options.clock = clock
            options.node = sharedNode
            options.runInBackground = { job in jobs.map { $0.hold(job) } ?? job() }
        }
        disk.forget()
        gateway = Gateway(
            settings: settings,
            spool: spool,
            log: Log(log.logger),
            contentClock: { [contentClock] in contentClock.update { $0 } }
        )
    }

    deinit {
        _ = gateway.deliveries.stopQueue(until: .after(.seconds(10)))
        try? FileManager.default.removeItem(atPath: root)
    }

    // MARK: Serving

    @discardableResult
    func serve(_ exchange: ScriptedExchange) -> ScriptedExchange.Record {
        gateway.serve(exchange)
        return judged(exchange)
    }

    func start(_ exchange: ScriptedExchange) throws -> Running {
        let running = Running(exchange, of: self)
        try SpoolgatePosix.Thread.start(name: "exchange", stackSize: 1 << 20) { [gateway] in
            gateway.serve(exchange)
            running.noteEnd()
        }
        return running
    }

    /// Serves a creation on a thread until the slow upstream has received it.
    func startDelivery(
        to slow: SlowUpstream,
        _ creation: ScriptedExchange = .creation()
    ) throws -> (running: Running, location: String) {
        let running = try start(creation)
        try slow.waitForRequest()
        return (running, try #require(creation.record.location))
    }

    fileprivate func judged(_ exchange: ScriptedExchange) -> ScriptedExchange.Record {
        let record = exchange.record
        #expect(record.faults == [])
        #expect(record.isAborted || record.head != nil, "neither a response nor an abort")
        let isWhole = !record.isAborted && record.leavesAfter == nil
        if isWhole, let length = record.contentLength, exchange.request.method != .head {
            #expect(Int64(record.content.count) == length, "not the announced length")
        }
        return record
    }

    // MARK: Operators and other processes

    var settings: Settings { gateway.deliveries.current.settings }

    func reload(_ change: (inout Settings) -> Void = { _ in }) {
        var settings = settings
        change(&settings)
        gateway.reload(settings)
    }

    /// Another daemon on the spool, such as a restarted one.
    func another(clock: SystemClock = SystemClock()) throws -> Gateway {
        Gateway(
            settings: settings,
            spool: try Spool(directory: "\(root)/spool") { $0.clock = clock },
            log: Log(log.logger)
        )
    }

    /// Locks an upload, as an operator's command does.
    func withUpload<T>(_ location: String, _ body: (Upload) throws -> T) throws -> T {
        let upload = try #require(
            try spool.lock(id(location), until: .after(.seconds(300)), requestRelease: {})
        )
        defer { upload.unlock() }
        return try body(upload)
    }

    func enqueue(_ location: String) throws {
        try withUpload(location) { try $0.postpone(reason: "a test", .queue(.now)) }
    }

    // MARK: Inspection

    func summaries() throws -> [UploadSummary] {
        var all: [UploadSummary] = []
        try spool.forEachUpload { all.append($0) }
        return all
    }

    func summary(_ location: String) throws -> UploadSummary {
        try #require(try summaries().first { location.hasSuffix($0.id.description) })
    }

    func id(_ location: String) throws -> UploadID {
        try #require(location.split(separator: "/").last.flatMap { UploadID(String($0)) })
    }

    func queue(of location: String) throws -> Queue? {
        try summaries().first { location.hasSuffix($0.id.description) }?.queue
    }

    func drops() throws -> [[UInt8]] {
        try FileManager.default.contentsOfDirectory(atPath: delivered)
            .filter { !$0.hasSuffix(".json") && !$0.hasPrefix(".") }.sorted()
            .compactMap { FileManager.default.contents(atPath: "\(delivered)/\($0)") }
            .map { Array($0) }
    }

    /// Makes an upload look unused for `seconds`.
    func age(_ location: String, by seconds: Double) throws {
        try setActivity(of: location, to: Int64(Date.now.timeIntervalSince1970 - seconds))
    }

    func setActivity(of location: String, to seconds: Int64) throws {
        let id = try #require(location.split(separator: "/").last).description
        let files = try #require(FileManager.default.enumerator(atPath: "\(root)/spool"))
        for case let file as String in files
        where file.hasPrefix("uploads/") && file.contains(id) {
            try FileManager.default.setAttributes(
                [.modificationDate: Date(timeIntervalSince1970: Double(seconds))],
                ofItemAtPath: "\(root)/spool/\(file)"
            )
        }
    }
}

final class Running: Sendable {
    private let exchange: ScriptedExchange
    private let test: GatewayUnderTest
    private let ended = Monitor(false)

    fileprivate init(_ exchange: ScriptedExchange, of test: GatewayUnderTest) {
        self.exchange = exchange
        self.test = test
    }

    var isEnded: Bool { ended.update { $0 } }

    fileprivate func noteEnd() { ended.update { $0 = true } }

    func finish() throws -> ScriptedExchange.Record {
        let isEnded = ended.wait(until: .after(.seconds(300))) { $0 ? true : nil }
        try #require(isEnded == true, "the exchange did not end")
        return test.judged(exchange)
    }
}

/// An upstream that reads an upload, sends `first`, and `rest` once its gate opens.
struct SlowUpstream {
    let gate = Gate()
    let origin: LoopbackOrigin
    var target: UpstreamTarget { origin.target }

    /// If `rest` is empty, the connection ends.
    init(
        first: String = "",
        then rest: String = "HTTP/1.1 201 Created\r\nContent-Length: 6\r\n\r\nstored"
    ) throws {
        origin = try LoopbackOrigin { [gate] connection in
            while try connection.receiveRequest() != nil {
                try connection.send(first)
                gate.pass()
                guard !rest.isEmpty else { return }
                try connection.send(rest)
            }
        }
    }

    func waitForRequest(_ count: Int = 1) throws {
        try eventually("the upstream has \(count)") { origin.requests.count == count }
    }
}

extension LoopbackOrigin {
    var target: UpstreamTarget { .http(base: base) }
}

final class WatchedDisk: Sendable {
    private struct State {
        var watcher: (@Sendable (Disk.Call, String) -> Void)?
        var calls: [(call: Disk.Call, subject: String)] = []
        var refusals:
            [(call: Disk.Call, isMeant: @Sendable (String) -> Bool, errno: Int32, times: Int)] = []
        var callsLeft: Int?
    }

    private let state = Monitor(State())

    var disk: Disk { Disk { call, subject throws(SystemError) in try self.check(call, subject) } }

    func watch(_ body: @escaping @Sendable (Disk.Call, String) -> Void) {
        state.update { $0.watcher = body }
    }

    private func check(_ call: Disk.Call, _ subject: String) throws(SystemError) -> Int {
        // Outside the lock: it waits for other threads.
        state.update { $0.watcher }?(call, subject)
        return try refuseOrCount(call, subject)
    }

    private func refuseOrCount(_ call: Disk.Call, _ subject: String) throws(SystemError) -> Int {
        try state.update { state throws(SystemError) in
            state.calls.append((call, subject))
            if let left = state.callsLeft {
                guard left > 0 else {
                    throw SystemError(call: call.rawValue, subject: subject, errno: EIO)
                }
                state.callsLeft = left - 1
            }
            for index in state.refusals.indices {
                let refusal = state.refusals[index]
                guard refusal.call == call, refusal.times > 0, refusal.isMeant(subject) else {
                    continue
                }
                state.refusals[index].times -= 1
                throw SystemError(call: call.rawValue, subject: subject, errno: refusal.errno)
            }
            return .max
        }
    }

    func forget() { state.update { $0.calls = [] } }

    /// Refuses the next `times` calls on paths that contain `part`.
    func refuse(_ call: Disk.Call, on part: String = "", errno: Int32, times: Int = .max) {
        refuse(call, where: { part.isEmpty || $0.contains(part) }, errno: errno, times: times)
    }

    func refuse(
        _ call: Disk.Call,
        where isMeant: @escaping @Sendable (String) -> Bool,
        errno: Int32,
        times: Int = .max
    ) {
        state.update { $0.refusals.append((call, isMeant, errno, times)) }
    }

    /// Makes `count` more calls, then none.
    func die(after count: Int) { state.update { $0.callsLeft = count } }

    func allow() {
        state.update { state in
            state.refusals = []
            state.callsLeft = nil
        }
    }

    func count(_ call: Disk.Call, on part: String = "") -> Int {
        count(call) { part.isEmpty || $0.contains(part) }
    }

    func count(_ call: Disk.Call, where isMeant: (String) -> Bool) -> Int {
        state.update { $0.calls.count { $0.call == call && isMeant($0.subject) } }
    }
}

final class LogLines: Sendable {
    private let lines = Monitor<
        [(level: Logger.Level, message: String, metadata: Logger.Metadata)]
    >([])

    var text: String {
        lines.update { lines in
            lines.map { "\($0.message) \($0.metadata)" }.joined(separator: "\n")
        }
    }

    var messages: [String] { lines.update { $0.map(\.message) } }

    func level(of message: String) -> Logger.Level? {
        lines.update { $0.first { $0.message == message }?.level }
    }

    func values(of key: String, in message: String) -> [String] {
        lines.update { lines in
            lines.filter { $0.message == message }.compactMap { $0.metadata[key].map { "\($0)" } }
        }
    }

    var logger: Logger {
        var logger = Logger(label: "test") { _ in Handler(lines: self) }
        logger.logLevel = .trace
        return logger
    }

    private struct Handler: LogHandler {
        let lines: LogLines
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.trace

        subscript(metadataKey key: String) -> Logger.MetadataValue? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            let all = metadata.merging(event.metadata ?? [:]) { $1 }
            lines.lines.update { $0.append((event.level, "\(event.message)", all)) }
        }
    }
}
