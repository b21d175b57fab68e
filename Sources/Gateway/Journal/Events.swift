// The output of events: a line in a file or on standard error, and an entry in the webhook's queue.
//
// No upload waits for a webhook or fails because of an event: an event that cannot be written is dropped and logged.

import HTTPTypes
package import SpoolgatePosix
package import SpoolgateSettings
package import SpoolgateSpool
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// Writes the events of one process to the destinations in the settings.
///
/// Thread-safe; several processes may share a file and a queue.
package final class Events: Sendable {
    private struct State {
        var settings: Settings
        var file: AppendedFile?

        func correlation(of creation: UploadCreation) -> String? {
            settings.correlationField.flatMap { creation.head.fields[$0] }
        }
    }

    private let state: Monitor<State>
    private let queue: EventQueue
    private let webhook: Webhook
    private let losses: DroppedEvents
    private let clock: SpoolClock
    private let standardError = StandardError()
    private static let fileMode: UInt32 = 0o640

    /// Creates the object for a process that uses a spool; opens no file.
    ///
    /// `gateway` is the name of the gateway in requests to the webhook, or nil if this process sends no events. The
    /// loss of events is reported to `log`.
    package init(_ settings: Settings, spool: Spool, log: Log, by gateway: GatewayName? = nil) {
        state = Monitor(State(settings: settings))
        let losses = DroppedEvents(log)
        self.losses = losses
        clock = spool.clock
        queue = EventQueue(spool: spool.directory) { losses.add($0, because: $1) }
        webhook = Webhook(
            settings.events,
            queue: queue,
            clock: spool.clock,
            log: log,
            via: gateway?.via
        )
    }

    /// The number of events that were lost because they could not be written.
    package var lost: Int { losses.total.count }
    /// The number of events that wait for the webhook.
    ///
    /// Events of other processes are counted once this process has begun to send them.
    package var pending: Int { queue.added.count + queue.left.count }

    /// Applies new settings, and reopens the file for the next event.
    package func reload(_ settings: Settings) {
        state.update { $0 = State(settings: settings) }
        webhook.reload(settings.events)
    }

    /// Reopens the file for the next event; call it after a log rotation.
    package func reopen() { state.update { $0.file = nil } }

    /// Returns the value of the request field that the settings name for correlation; nil if the upload has none.
    package func correlation(of creation: UploadCreation) -> String? {
        state.updateQuietly { $0.correlation(of: creation) }
    }

    /// Sets the event's time, and writes it to the file and the webhook's queue; does not wait for the webhook.
    package func note(_ event: @autoclosure () -> Event) {
        let isReported = state.updateQuietly { state in
            state.settings.events.destination != nil || state.settings.events.webhook.url != nil
        }
        guard isReported else { return }
        let state = state.updateQuietly { $0 }
        let settings = state.settings
        var event = event()
        event.time = clock.now
        event.node = settings.node
        if let creation = event.creation { event.correlation = state.correlation(of: creation) }
        event.target = event.target?.shownTarget(withQuery: settings.showsQueries)
        let line = event.json.text
        switch settings.events.destination {
        case nil: break
        case .journal:
            losses.counting { () throws(SystemError) in
                try standardError.write(line: line, .informational)
            }
        case .file(let path):
            losses.counting { () throws(SystemError) in try file(path).add(line: line) }
        }
        if settings.events.webhook.url != nil {
            queue.add(line, at: event.time)
            webhook.wake()
        }
    }

    private func file(_ path: String) throws(SystemError) -> AppendedFile {
        if let file = state.update({ $0.file }), file.path == path { return file }
        // Two threads may open the file at once; either descriptor can be used.
        let opened = try AppendedFile(path: path, mode: Self.fileMode)
        state.update { if $0.settings.events.destination == .file(path) { $0.file = opened } }
        return opened
    }

    // MARK: The webhook

    /// Starts the thread that sends the events in the webhook's queue.
    ///
    /// Call it only once. While another process sends the queue's events, the thread waits.
    ///
    /// - Throws: `SystemError` if the thread cannot be started.
    package func startSending() throws(SystemError) { try webhook.start() }

    /// Stops sending, and waits for the thread to end.
    ///
    /// Events that the webhook has not accepted stay in the queue.
    ///
    /// - Returns: true if the thread ended before `deadline`.
    @discardableResult
    package func stopSending(until deadline: Deadline) -> Bool { webhook.stop(until: deadline) }
}

/// Counts lost events and logs their number, rate-limited.
private final class DroppedEvents: Sendable {
    let total = Counter()
    private let lines = Monitor(RareLines<String>())
    private let log: Log

    init(_ log: Log) { self.log = log }

    func counting(_ body: () throws(SystemError) -> Void) {
        do throws(SystemError) { try body() } catch { add(1, because: error) }
    }

    func add(_ more: Int, because error: SystemError) {
        total.add(more)
        let lost = lines.update { $0.note("events", count: more) }
        if let lost { log.eventsLost(lost, reason: "\(error)") }
    }
}
