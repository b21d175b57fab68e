// Reports to the service manager what the daemon does and, at intervals, that it still works (sd_notify(3)).
//
// Invariant: the daemon is reported to work only if a thread accepts connections, or during shutdown, which has a
// deadline.

import SpoolgateAdmin
import SpoolgateFastCGIFront
import SpoolgateJournal
import SpoolgatePosix

/// The thread that sends the reports; thread-safe.
final class ServiceReport: Sendable {
    private static let interval = Duration.seconds(5)
    /// The time within which a working daemon accepts connections; a busy machine needs far less.
    private static let patience = Duration.seconds(10)

    private let manager: ServiceManager
    private let isEnding = Monitor(false)

    init(_ manager: ServiceManager) { self.manager = manager }

    func start(_ admin: Admin, _ server: FastCGIServer, _ log: Log) throws(SystemError) {
        guard manager.isThere else { return }
        let interval = manager.watchdog.map { min(Self.interval, $0 / 4) } ?? Self.interval
        try Thread.start(name: "report") { [self] in
            var last = ""
            var wasSilent = false
            while true {
                let line = admin.statusLine
                if line != last { notify(.status(line), log) }
                last = line
                if manager.watchdog != nil {
                    let isAlive = isEnded || server.isAccepting(within: Self.patience) || isEnded
                    if isAlive { notify(.alive, log) }
                    if !isAlive, !wasSilent { log.listenerFailed("no thread accepts connections") }
                    wasSilent = !isAlive
                }
                Thread.pause(interval)
            }
        }
    }

    /// Counts the daemon as working, from now on, even if it accepts no connections.
    func noteEnd() { isEnding.update { $0 = true } }

    private var isEnded: Bool { isEnding.update { $0 } }

    /// Sends a state, and logs a failure to do so.
    func notify(_ state: ServiceManager.State, _ log: Log) {
        do throws(SystemError) {
            try manager.notify(state)
        } catch {
            log.listenerFailed("cannot notify the service manager: \(error)")
        }
    }
}
