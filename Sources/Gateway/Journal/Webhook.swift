// Sending of events to a webhook, one at a time, each until it is accepted or too old.
//
// Invariant: an event is marked as done only after a 2xx response or once its lifetime has ended.

import HTTPTypes
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol
import SpoolgateUpstream

/// The thread that sends a webhook's events; thread-safe.
final class Webhook: Sendable {
    private struct State {
        var settings: EventSettings
        var generation = 0
        var hasNews = true
        var isStopping = false
        var isRunning = false
    }

    private let state: Monitor<State>
    private let queue: EventQueue
    private let clock: SpoolClock
    private let log: Log
    /// The field by which this gateway recognises its own event if the event is sent back; nil if the gateway is
    /// unnamed.
    private let via: HTTPField?
    /// How often to check for events of other processes, and whether another process has stopped sending.
    private static let interval = Duration.seconds(1)
    private static let longestPause = Duration.seconds(300)
    private static let responseCap = 0

    init(_ settings: EventSettings, queue: EventQueue, clock: SpoolClock, log: Log, via: HTTPField?)
    {
        state = Monitor(State(settings: settings))
        self.queue = queue
        self.clock = clock
        self.log = log
        self.via = via
    }

    /// Applies new settings; an event that is waiting for another attempt is sent at once.
    func reload(_ settings: EventSettings) {
        state.update {
            $0.settings = settings
            $0.generation += 1
        }
    }

    func wake() { state.update { $0.hasNews = true } }

    func start() throws(SystemError) {
        state.update { $0.isRunning = true }
        do throws(SystemError) {
            try Thread.start(name: "webhook") { [self] in
                work()
                state.update { $0.isRunning = false }
            }
        } catch {
            state.update { $0.isRunning = false }
            throw error
        }
    }

    func stop(until deadline: Deadline) -> Bool {
        state.update { $0.isStopping = true }
        return state.wait(until: deadline) { $0.isRunning ? nil : true } ?? false
    }

    // MARK: The thread

    private func work() {
        while let service = nextService() {
            do throws(SystemError) {
                // The lock is held while events are sent; other processes can only add events.
                guard let place = try queue.takeSender() else {
                    queue.settle()
                    pause(Self.interval, service)
                    continue
                }
                try send(to: service)
                withExtendedLifetime(place) {}
            } catch {
                log.webhookFailed(reason: "cannot read the queued events: \(error)")
                pause(Self.longestPause, service)
            }
        }
    }

    private struct Service {
        var url: ServiceURL
        var upstream: Upstream
        var settings: EventSettings
        var generation: Int
    }

    /// Waits until the settings name a webhook; returns nil if the thread must end.
    private func nextService() -> Service? {
        state.wait(until: .never) { state -> Service?? in
            if state.isStopping { return .some(nil) }
            guard let url = state.settings.webhook.url,
                let upstream = state.settings.webhook.upstream
            else { return nil }
            return .some(
                Service(
                    url: url,
                    upstream: Upstream(upstream),
                    settings: state.settings,
                    generation: state.generation
                )
            )
        } ?? nil
    }

    private func isCurrent(_ service: Service) -> Bool {
        state.update { !$0.isStopping && $0.generation == service.generation }
    }

    private func send(to service: Service) throws(SystemError) {
        while isCurrent(service) {
            state.update { $0.hasNews = false }
            guard let batch = try queue.batch() else {
                pause(Self.interval, service, orNews: true)
                continue
            }
            try send(batch, to: service)
        }
    }

    private func send(_ batch: EventBatch, to service: Service) throws(SystemError) {
        while isCurrent(service) {
            switch try batch.look() {
            case .skipped: try batch.advance(marking: false)
            case .end:
                if try batch.remove() { return }
            case .event(let event):
                guard send(event, to: service) else { return }
                try batch.advance(marking: true)
            }
        }
    }

    /// Sends an event until it is accepted or too old; returns false if the settings change or the daemon ends first.
    private func send(_ event: QueuedEvent, to service: Service) -> Bool {
        var failures = 0
        while isCurrent(service) {
            guard let reason = failure(of: event, to: service) else { return true }
            failures += 1
            let age = max(0, clock.confirmed.seconds - event.time.seconds)
            guard age < service.settings.lifetime.components.seconds else {
                log.eventDropped(delivery: event.id, reason: reason)
                return true
            }
            if failures == 1 { log.webhookFailed(reason: reason) }
            let left = service.settings.lifetime.components.seconds - age
            pause(min(Self.backoff(failures), .seconds(left)), service)
        }
        return false
    }

    /// Sends an event once; returns why it was not accepted, or nil if it was.
    private func failure(of event: QueuedEvent, to service: Service) -> String? {
        let response = WholeResponse(
            cap: Self.responseCap,
            timeout: service.settings.webhook.timeout
        )
        var fields: HTTPFields = [
            .contentType: "application/json", .spoolgateDelivery: event.id,
            .userAgent: "spoolgate",
        ]
        if let via { fields.append(via) }
        let outcome = service.upstream.attempt(
            UpstreamRequest(
                method: .post,
                target: service.url.requestTarget,
                fields: fields,
                content: .bytes(Array(event.json.utf8))
            ),
            sink: response
        )
        if let status = response.head?.status.code {
            return (200..<300).contains(status)
                ? nil : "\(service.url.text) responded with \(status); it must respond with 2xx"
        }
        return outcome.reason ?? "\(service.url.text) sent no response"
    }

    // MARK: Waiting

    /// Returns a random pause between half of a maximum and the maximum, which doubles from one second to
    /// `longestPause`.
    private static func backoff(_ failures: Int) -> Duration {
        let whole = min(longestPause, .seconds(1) * (1 << min(failures - 1, 10)))
        return whole / 2 + whole / 2 * Double.random(in: 0...1)
    }

    /// Waits for `duration`, or until the daemon ends, the settings change or, if `orNews`, this process adds an event.
    private func pause(_ duration: Duration, _ service: Service, orNews: Bool = false) {
        _ = state.wait(until: .after(duration)) { state in
            state.isStopping || state.generation != service.generation || orNews && state.hasNews
                ? true : nil
        }
    }
}

extension HTTPField.Name {
    fileprivate static let spoolgateDelivery = made("spoolgate-delivery")
    fileprivate static let userAgent = made("user-agent")
}
