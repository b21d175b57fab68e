// Reports to the service manager what the daemon does, and regularly that it still works (sd_notify(3)).
//
// Invariant: the daemon is reported to work only if a thread accepts connections, or if it is shutting down, which has
// a deadline.

import SpoolgateAdmin
import SpoolgateFastCGIFront
import SpoolgateJournal
import SpoolgatePosix

/// The thread that reports to the service manager.
///
/// Thread-safe.
final class ServiceReport: Sendable {
    private static let interval = Duration.seconds(5)
    /// The time within which a thread must be accepting connections for the daemon to count as working; a busy machine
    /// needs far less.
    private static let patience = Duration.seconds(10)

    private let manager: ServiceManager
    private let isEnding = Monitor(false)

    init(_ manager: ServiceManager) { self.manager = manager }

    /// Starts the thread.
    /// - Throws: `SystemError` if no thread can be started.
    func start(_ admin: Admin, _ server: FastCGIServer, _ log: Log) throws(SystemError) {
        guard manager.isThere else { return }
        let interval = manager.watchdog.map { min(Self.interval, $0 / 4) } ?? Self.interval
        try Thread.start(name: "report") { [self] in
            var last = ""
            var wasSilent = false
            while true {
                let line = admin.statusLine
                if line != last { tell(.status(line), log) }
                last = line
                if manager.watchdog != nil {
                    let isAlive = isOver || server.isAccepting(within: Self.patience) || isOver
                    if isAlive { tell(.alive, log) }
                    if !isAlive, !wasSilent { log.frontTrouble("no thread accepts connections") }
                    wasSilent = !isAlive
                }
                Thread.pause(interval)
            }
        }
    }

    /// Records that the daemon is shutting down.
    ///
    /// From then on it counts as working without accepting connections.
    func noteEnd() { isEnding.update { $0 = true } }

    private var isOver: Bool { isEnding.update { $0 } }

    /// Sends a state to the service manager, and logs a failure to do so.
    func tell(_ state: ServiceManager.State, _ log: Log) {
        do throws(SystemError) {
            try manager.tell(state)
        } catch {
            log.frontTrouble("cannot notify the service manager: \(error)")
        }
    }
}
