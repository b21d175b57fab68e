// Signals that ask the command to stop. The transfer pauses; running the same command again continues it.
//
// The invariant: a signal that was ignored at the start (nohup, a background job of a shell) stays ignored.

import Glibc
import SpoolgatePosix

final class Interruption: Sendable {
    private struct State {
        var isRequested = false
        var action: (@Sendable () -> Void)?
    }

    private let state = Monitor(State())

    /// Handles SIGINT, SIGTERM and SIGHUP; call it before the first thread starts.
    ///
    /// The first signal asks the transfer to stop; a second one ends the process at once.
    init() throws(Ending) {
        let ending = [Signal.interrupt, .terminate, .hangUp].filter { !Signals.isIgnored($0) }
        let signals = Signals.block()
        do throws(SystemError) {
            try SpoolgatePosix.Thread.start(name: "signals") { [self] in
                while true {
                    guard ending.contains(signals.next()) else { continue }
                    let isSecond = state.update { state in
                        defer { state.isRequested = true }
                        return state.isRequested
                    }
                    if isSecond { _exit(Ending.Code.later.rawValue) }
                    state.update { $0.action }?()
                }
            }
        } catch {
            throw Ending(.later, "\(error); try again later")
        }
    }

    var isRequested: Bool { state.updateQuietly(\.isRequested) }

    /// Calls `action` at the first signal, or at once if a signal has already been received.
    func onRequest(_ action: @escaping @Sendable () -> Void) {
        let isRequested = state.update { state in
            state.action = action
            return state.isRequested
        }
        if isRequested { action() }
    }

    /// Waits until a time of the wall clock, even if the clock is set during the wait.
    ///
    /// Returns nil if the transfer may start, or, if a signal arrives first, a sentence that says why `what` does not.
    /// A `moment` of nil means at once. `notify` is called before a wait, with the duration and the reason.
    func wait(
        until moment: WallTime?,
        toBegin what: String,
        _ notify: (Duration, String) -> Void
    ) -> String? {
        guard let moment, moment > .now else { return nil }
        let seconds = moment.seconds - WallTime.now.seconds
        notify(.seconds(seconds), "the start time is \(moment)")
        while !isRequested {
            let left = moment.seconds - WallTime.now.seconds
            guard left > 0 else { return nil }
            _ = state.wait(until: .after(.seconds(min(left, 10))), isQuiet: true) {
                $0.isRequested ? true : nil
            }
        }
        return "stopped before \(moment), the start time of \(what)"
    }
}
