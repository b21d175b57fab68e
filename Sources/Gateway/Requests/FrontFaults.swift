// Mistakes in the web server's configuration that its requests reveal: all are counted, some are logged.
//
// A mistake affects every request, so one line for each request would flood the log.

package import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix

/// The web server's faults found by one process; thread-safe.
package final class FrontFaults: Sendable {
    /// One kind of fault on one route; its log lines are rate-limited together.
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
    /// Limited because clients can choose route names in some configurations of the web server.
    private static let mostSubjects = 200

    /// `interval` is the minimum time between two log lines about the same subject.
    init(interval: Duration = .seconds(60)) { self.interval = interval }

    /// How often each kind of fault was found since the process started; kinds that were not found are missing.
    package var counts: [FrontFault: Int] { state.update { $0.counts } }

    /// The kinds of faults found in the last 15 minutes.
    package var recent: Set<FrontFault> {
        state.update { Set($0.recent.filter { !$0.value.hasPassed }.keys) }
    }

    /// Counts a fault; `route` must be empty if the route is unknown.
    ///
    /// - Returns: how many faults the log line must report; nil if it is too soon for another line.
    func note(_ fault: FrontFault, route: String = "") -> Int? {
        state.update { state in
            state.counts[fault, default: 0] += 1
            state.recent[fault] = .after(.seconds(900))
            var subject = Subject(fault: fault, route: route)
            // A variable with the subjects would make the next change copy them.
            if state.lines.subjects.count >= Self.mostSubjects,
                !state.lines.subjects.contains(subject)
            {
                subject.route = ""
            }
            // A missing origin does no harm, so it is logged only once.
            return state.lines.note(subject, next: fault == .noOrigin ? .never : .after(interval))
        }
    }

    /// Allows faults that are logged only once to be logged again after a reconfiguration.
    func reload() {
        state.update { $0.lines.forget { $0.fault == .noOrigin } }
    }
}

extension Gateway {
    /// Logs a request that lacks a required parameter, which `reason` names.
    func noteMissing(_ context: ExchangeContext, reason: String) {
        guard context.faults.contains(.noMethod), let count = faults.note(.noMethod) else { return }
        log.frontMisconfigured(reason: reason, count: count)
    }

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
        if context.faults.contains(.bufferingUnknown),
            let count = faults.note(.bufferingUnknown, route: route)
        {
            log.frontMayBuffer(route: route, count: count)
        }
        if context.faults.contains(.buffered), let count = faults.note(.buffered, route: route) {
            log.frontBuffers(route: route, count: count)
        }
    }

    func noteUnknownRoute(_ route: String, target: String) {
        guard let count = faults.note(.unknownRoute, route: route) else { return }
        log.unknownRoute(route, target: target, count: count)
    }
}
