// Reports to the service manager what the daemon does, and regularly that it still works (sd_notify(3)).
//
// Invariant: the daemon is reported to work only if a thread accepts connections, or during its shutdown, which has a
// deadline.

import SpoolgateAdmin
import SpoolgateFastCGIFront
import SpoolgateJournal
import SpoolgatePosix

/// The thread that reports to the service manager.
///
/// Thread-safe.
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

    /// From then on the daemon counts as working without accepting connections.
    func noteEnd() { isEnding.update { $0 = true } }

    private var isOver: Bool { isEnding.update { $0 } }

    /// Logs a failure to send the state.
    func tell(_ state: ServiceManager.State, _ log: Log) {
        do throws(SystemError) {
            try manager.tell(state)
        } catch {
            log.frontTrouble("cannot notify the service manager: \(error)")
        }
    }
}
