// The FastCGI listener of one daemon. A daemon that has died neither receives nor sends anything more.

import HTTPTypes
import SpoolgateExchange
import SpoolgateFastCGIFront
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateUploadProtocol

final class Front: Sendable {
    /// Its upstream's name in nginx's configuration.
    let name: String
    let web: WebServer
    private let server: FastCGIServer
    private let faults = Monitor<[String]>([])

    init(
        _ name: String,
        at path: String,
        _ gateway: Gateway,
        _ web: WebServer,
        isDead: @escaping @Sendable () -> Bool
    ) throws {
        self.name = name
        self.web = web
        var settings = FastCGIServer.Settings()
        (settings.minimumSpare, settings.maximum) = (2, 32)
        settings.stackSize = 1 << 20
        server = try FastCGIServer(
            settings: settings,
            listener: .open(.unix(path: path, mode: 0o600, group: nil)),
            report: { [faults] event in
                // nginx may give up a connection before it has sent a request.
                if event != .noRequest { faults.update { $0.append("the listener: \(event)") } }
            },
            respond: { exchange, isLast in
                let number = (try? exchange.head.get())?.fields[.sim("X-Call")].flatMap { Int($0) }
                let call = number.flatMap { web.call($0) }
                call?.noteServed(.begun)
                gateway.serve(MortalExchange(exchange, call, isDead), isLast: isLast)
                if isDead() {
                    _ = exchange.withdraw()
                    exchange.abort()
                }
                call?.noteServed(.ended)
            }
        )
        try server.start()
    }

    /// Serves the requests that have come, and no further ones; returns false if some did not end in time.
    func drain(_ limit: Duration, interrupt: () -> Void) -> Bool {
        server.drain(until: .after(limit), interrupt: interrupt)
    }

    /// Returns what was wrong with the listener.
    func close() -> [String] {
        let isDrained = drain(.seconds(20)) {}
        web.free(self)
        return faults.updateQuietly { $0 } + (isDrained ? [] : ["the listener does not end"])
    }
}

private final class MortalExchange: Exchange {
    private let inner: any Exchange
    private let call: WireExchange?
    private let isDead: @Sendable () -> Bool

    init(_ inner: any Exchange, _ call: WireExchange?, _ isDead: @escaping @Sendable () -> Bool) {
        (self.inner, self.call, self.isDead) = (inner, call, isDead)
    }

    var head: Result<RequestHead, Refusal> { inner.head }
    var context: ExchangeContext { inner.context }
    var interrupt: @Sendable () -> Void { inner.interrupt }
    var isPeerGone: Bool { isDead() || inner.isPeerGone }

    func setAlarm(_ alarm: Alarm?) { inner.setAlarm(alarm) }

    func receive(into buffer: ContentBuffer) throws(ContentError) -> Bool {
        guard !isDead() else { throw .truncated }
        let before = buffer.count
        call?.noteWaiting(true)
        defer {
            call?.noteReceived(buffer.count - before)
            call?.noteWaiting(false)
        }
        return try inner.receive(into: buffer)
    }

    var beforeHead: ((inout ResponseHead) -> Void)? {
        get { inner.beforeHead }
        set { inner.beforeHead = newValue }
    }

    func send(interim head: ResponseHead) -> Bool { !isDead() && inner.send(interim: head) }

    func send(head: ResponseHead, contentLength: Int64?) throws(ClientGone) {
        guard !isDead() else { throw ClientGone() }
        try inner.send(head: head, contentLength: contentLength)
    }

    func send(content: RawSpan) throws(ClientGone) {
        guard !isDead() else { throw ClientGone() }
        try inner.send(content: content)
    }

    func withdraw() -> Bool { inner.withdraw() }
    func abort() { inner.abort() }
}

extension MortalExchange: ContentLane {
    var lane: (any ContentLane)? { call != nil && inner.lane != nil ? self : nil }
    var wasOffered: Bool { inner.lane?.wasOffered ?? false }

    func isOffered() throws(ContentError) -> Bool {
        call?.noteWaiting(true)
        defer { call?.noteWaiting(false) }
        return try living().isOffered()
    }

    func grant(
        _ file: consuming Descriptor,
        at offset: Int64,
        _ limit: LaneLimit
    ) throws(ContentError) {
        let lane = try living()
        call?.noteLoan(file.number, from: offset)
        try lane.grant(file, at: offset, limit)
    }

    func widen(_ limit: LaneLimit) throws(ContentError) { try living().widen(limit) }
    func stop() { inner.lane?.stop() }

    func receiveReport() throws(ContentError) -> LaneReport? {
        call?.noteWaiting(true)
        defer { call?.noteWaiting(false) }
        return try living().receiveReport()
    }

    private func living() throws(ContentError) -> any ContentLane {
        guard !isDead(), let lane = inner.lane else { throw .truncated }
        return lane
    }
}
