// Where events go: a line in a file or on standard error, and a place in the webhook's queue.
//
// No upload ever waits for a webhook, and none fails for the want of an event: what cannot be written
// is dropped, and the log says so once in a while.

import HTTPTypes
package import SpoolgatePosix
package import SpoolgateSettings
package import SpoolgateSpool
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// The events of one process.
///
/// Any thread; several processes may write to the same file and queue.
package final class Events: Sendable {
    private struct State {
        var settings: EventSettings
        var correlationField: HTTPField.Name?
        var node: String?
        var showsQueries: Bool
        var file: AppendedFile?

        init(_ settings: Settings) {
            self.settings = settings.events
            correlationField = settings.correlationField
            node = settings.node
            showsQueries = settings.showsQueries
        }

        func correlation(of creation: UploadCreation) -> String? {
            correlationField.flatMap { creation.head.fields[$0] }
        }
    }

    private let state: Monitor<State>
    private let queue: EventQueue
    private let webhook: Webhook
    private let losses: DroppedEvents
    private let clock: SpoolClock
    private let standardError = StandardError()
    /// Permissions of an event file that is made.
    private static let fileMode: UInt32 = 0o640

    /// Makes the events of a process that works on a spool.
    ///
    /// - Parameters:
    ///   - settings: where they go.
    ///   - spool: the spool; the webhook's queue is in its directory.
    ///   - log: where it is said that events were lost.
    ///   - gateway: the name of the gateway that sends events; nil: this process sends none.
    package init(_ settings: Settings, spool: Spool, log: Log, by gateway: GatewayName? = nil) {
        state = Monitor(State(settings))
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

    /// Events that could not be written down.
    package var lost: Int { losses.total.count }
    /// Events that wait for the webhook, as far as this process knows; those that others add show once it takes
    /// them up.
    package var pending: Int { queue.added.count + queue.left.count }

    /// Puts new settings in force, and opens the file anew.
    package func reload(_ settings: Settings) {
        state.update { $0 = State(settings) }
        webhook.reload(settings.events)
    }

    /// Opens the file anew, for what rotates it.
    package func reopen() { state.update { $0.file = nil } }

    /// What correlates an upload with other logs; nil where nothing does.
    package func correlation(of creation: UploadCreation) -> String? {
        // Mostly there is no such field: then nothing is copied.
        state.updateQuietly { $0.correlation(of: creation) }
    }

    /// Tells an event; returns without waiting for whom it is told.
    package func note(_ event: @autoclosure () -> Event) {
        // Mostly nobody is: then not even the settings are copied.
        let isTold = state.updateQuietly { state in
            state.settings.destination != nil || state.settings.webhook.url != nil
        }
        guard isTold else { return }
        let state = state.updateQuietly { $0 }
        let settings = state.settings
        var event = event()
        event.time = clock.now
        event.node = state.node
        if let creation = event.creation { event.correlation = state.correlation(of: creation) }
        event.target = event.target?.shownTarget(withQuery: state.showsQueries)
        let line = event.json.text
        switch settings.destination {
        case nil: break
        case .journal:
            losses.counting { () throws(SystemError) in
                try standardError.write(line: line, .informational)
            }
        case .file(let path):
            losses.counting { () throws(SystemError) in try file(path).add(line: line) }
        }
        if settings.webhook.url != nil {
            queue.add(line, at: event.time)
            webhook.wake()
        }
    }

    private func file(_ path: String) throws(SystemError) -> AppendedFile {
        if let file = state.update({ $0.file }), file.path == path { return file }
        // Two threads may both open it here; either one will do.
        let opened = try AppendedFile(path: path, mode: Self.fileMode, owner: queue.owner)
        state.update { if $0.settings.destination == .file(path) { $0.file = opened } }
        return opened
    }

    // MARK: The webhook

    /// Starts sending what is in the webhook's queue, now and from now on.
    ///
    /// Call it once; another process that sends already is waited for.
    ///
    /// - Throws: `SystemError` when no thread can be started.
    package func startSending() throws(SystemError) { try webhook.start() }

    /// Stops sending; what was not answered stays in the queue.
    ///
    /// - Returns: whether the sender has ended by `deadline`.
    @discardableResult
    package func stopSending(until deadline: Deadline) -> Bool { webhook.stop(until: deadline) }
}

/// Counts events that are lost, and says so once in a while.
private final class DroppedEvents: Sendable {
    private struct Count {
        var lost = 0
        var next = Deadline.after(.zero)
    }

    /// All that were lost.
    let total = Counter()
    private let count = Monitor(Count())
    private let log: Log
    private static let interval = Duration.seconds(60)

    init(_ log: Log) { self.log = log }

    func counting(_ body: () throws(SystemError) -> Void) {
        do throws(SystemError) { try body() } catch { add(1, because: error) }
    }

    func add(_ more: Int, because error: SystemError) {
        total.add(more)
        let lost = count.update { count -> Int? in
            count.lost += more
            guard count.next.hasPassed else { return nil }
            count.next = .after(Self.interval)
            defer { count.lost = 0 }
            return count.lost
        }
        if let lost { log.eventsLost(lost, reason: "\(error)") }
    }
}
