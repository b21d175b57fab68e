// Telling the service manager, again and again, how things are and that the service works.
//
// Invariant: it hears that the service works only while some thread takes up connections, or the daemon ends and has
// a deadline for that.

import SpoolgateAdmin
import SpoolgateFastCGIFront
import SpoolgateJournal
import SpoolgatePosix

/// The thread that reports.
///
/// Any thread.
final class ServiceReport: Sendable {
    private static let interval = Duration.seconds(5)
    /// How long a thread may take to take up a connection: far more than a busy machine needs.
    private static let patience = Duration.seconds(10)

    private let manager: ServiceManager
    private let isEnding = Monitor(false)

    init(_ manager: ServiceManager) { self.manager = manager }

    /// Begins to report.
    /// - Throws: `SystemError` when no thread can be started.
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

    /// Says that the daemon ends: from now on no connection has to be taken up.
    func noteEnd() { isEnding.update { $0 = true } }

    private var isOver: Bool { isEnding.update { $0 } }

    /// Tells a state; where that fails, the log says so.
    func tell(_ state: ServiceManager.State, _ log: Log) {
        do throws(SystemError) {
            try manager.tell(state)
        } catch {
            log.frontTrouble("cannot notify the service manager: \(error)")
        }
    }
}
