// Mistakes in the web server's configuration that its requests reveal: all are counted, some are logged.
//
// Such a mistake affects every request, so one line for each would flood the log. Invariant: each line states the
// number of faults since the line before.

package import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix

/// The faults that one process has found in its web server's configuration.
///
/// Thread-safe.
package final class FrontFaults: Sendable {
    /// The unit of logging: a kind of fault on one route.
    private struct Subject: Hashable {
        var fault: FrontFault
        var route: String
    }

    private struct State {
        var counts: [FrontFault: Int] = [:]
        var recent: [FrontFault: Deadline] = [:]
        var lines = RareLines<Subject>()
    }

    private let state = Monitor(State())
    private let interval: Duration
    /// The limit on subjects: depending on the web server's configuration, clients can choose route names.
    private static let mostSubjects = 200

    /// Starts without faults; `interval` is the minimum time between two lines on the same subject.
    init(interval: Duration = .seconds(60)) { self.interval = interval }

    /// The number of faults by kind since the process started; a kind without faults is absent.
    package var counts: [FrontFault: Int] { state.update { $0.counts } }

    /// The kinds of faults found in the last 15 minutes.
    package var recent: Set<FrontFault> {
        state.update { Set($0.recent.filter { !$0.value.hasPassed }.keys) }
    }

    /// Counts a fault of a route, or a fault without a known route.
    ///
    /// - Returns: the number of faults to log now; nil if no line is due.
    func note(_ fault: FrontFault, route: String = "") -> Int? {
        state.update { state in
            state.counts[fault, default: 0] += 1
            state.recent[fault] = .after(.seconds(900))
            var subject = Subject(fault: fault, route: route)
            let subjects = state.lines.subjects
            if subjects.count >= Self.mostSubjects, !subjects.contains(subject) {
                subject.route = ""
            }
            // A missing origin does no harm, so it is logged only once.
            return state.lines.note(subject, next: fault == .noOrigin ? .never : .after(interval))
        }
    }

    /// Lets one-time faults be logged again; the web server may have been reconfigured too.
    func reload() {
        state.update { $0.lines.forget { $0.fault == .noOrigin } }
    }
}

extension Gateway {
    /// Logs, rate-limited, a request without a required parameter; `reason` names it.
    func noteMissing(_ context: ExchangeContext, reason: String) {
        guard context.faults.contains(.noMethod), let count = faults.note(.noMethod) else { return }
        log.frontMisconfigured(reason: reason, count: count)
    }

    /// Logs, rate-limited, faults that do not prevent a request from being served.
    func noteFaults(_ context: ExchangeContext, route: String, isUpload: Bool) {
        if context.faults.contains(.noOrigin), faults.note(.noOrigin, route: route) != nil {
            log.noOrigin(route: route)
        }
        if let text = context.badOrigin, context.faults.contains(.badOrigin),
            let count = faults.note(.badOrigin, route: route)
        {
            log.badOrigin(text, route: route, count: count)
        }
        // Buffering is harmless for other requests.
        guard isUpload else { return }
        if context.faults.contains(.bufferingUntold),
            let count = faults.note(.bufferingUntold, route: route)
        {
            log.frontMayBuffer(route: route, count: count)
        }
        if context.faults.contains(.buffered), let count = faults.note(.buffered, route: route) {
            log.frontBuffers(route: route, count: count)
        }
    }

    /// Logs, rate-limited, a route name that is not in the settings.
    func noteUnknownRoute(_ route: String, target: String) {
        guard let count = faults.note(.unknownRoute, route: route) else { return }
        log.unknownRoute(route, target: target, count: count)
    }
}
