// Mistakes in the web server's configuration, as its requests show them: counted, and told now and then.
//
// Such a mistake comes with every request, so a line for each would bury the log. Invariant: every fault
// is counted, and each one that is told says how many there were since the line before.

package import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix

/// The faults of one process's front.
///
/// Any thread.
package final class FrontFaults: Sendable {
    /// What has a line of its own: a kind, and the route it was seen at.
    private struct Subject: Hashable {
        var fault: FrontFault
        var route: String
    }

    private struct State {
        var counts: [FrontFault: Int] = [:]
        /// Until when each is recent.
        var recent: [FrontFault: Deadline] = [:]
        var lines = RareLines<Subject>()
    }

    private let state = Monitor(State())
    private let interval: Duration
    /// Names of routes may come from clients where the web server's configuration makes them so.
    private static let mostSubjects = 200

    /// Makes it with nothing counted; `interval` passes between two lines on one subject.
    init(interval: Duration = .seconds(60)) { self.interval = interval }

    /// How many there were since the process began, by kind; a kind without any is absent.
    package var counts: [FrontFault: Int] { state.update { $0.counts } }

    /// Those that were seen in the last quarter of an hour.
    package var recent: Set<FrontFault> {
        state.update { Set($0.recent.filter { !$0.value.hasPassed }.keys) }
    }

    /// Counts a fault of a route, or one that no route can be told for.
    ///
    /// - Returns: how many of these are to be told now, this one included; nil: nothing is to be told.
    func note(_ fault: FrontFault, route: String = "") -> Int? {
        state.update { state in
            state.counts[fault, default: 0] += 1
            state.recent[fault] = .after(.seconds(900))
            var subject = Subject(fault: fault, route: route)
            let subjects = state.lines.subjects
            if subjects.count >= Self.mostSubjects, !subjects.contains(subject) {
                subject.route = ""
            }
            // Nothing is lost by it, so it is said once; the others do harm as long as they last.
            return state.lines.note(subject, next: fault == .noOrigin ? .never : .after(interval))
        }
    }

    /// Tells again what is told only once: the settings were read again, and the web server's perhaps.
    func reload() {
        state.update { $0.lines.forget { $0.fault == .noOrigin } }
    }
}

extension Gateway {
    /// Tells, once in a while, of a request that lacks what no request can be without; `reason` names
    /// it.
    func noteMissing(_ context: ExchangeContext, reason: String) {
        guard context.faults.contains(.noMethod), let count = faults.note(.noMethod) else { return }
        log.frontMisconfigured(reason: reason, count: count)
    }

    /// Tells, once in a while, of faults that do not keep a request from being served.
    func noteFaults(_ context: ExchangeContext, route: String, isUpload: Bool) {
        if context.faults.contains(.noOrigin), faults.note(.noOrigin, route: route) != nil {
            log.noOrigin(route: route)
        }
        if let text = context.badOrigin, context.faults.contains(.badOrigin),
            let count = faults.note(.badOrigin, route: route)
        {
            log.badOrigin(text, route: route, count: count)
        }
        // What is no upload is buffered without harm.
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

    /// Tells, once in a while, of a route that the settings do not have.
    func noteUnknownRoute(_ route: String, target: String) {
        guard let count = faults.note(.unknownRoute, route: route) else { return }
        log.unknownRoute(route, target: target, count: count)
    }
}
