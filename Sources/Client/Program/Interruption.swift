// Signals that ask the command to end: it pauses, and the same command again goes on.
//
// The invariant: what whoever started the process had it ignore (nohup, a shell in the background) ends nothing.

import Glibc
import SpoolgatePosix

/// Whether somebody asked this process to end.
final class Interruption: Sendable {
    private struct State {
        var isAsked = false
        var action: (@Sendable () -> Void)?
    }

    private let state = Monitor(State())

    /// Takes SIGINT, SIGTERM and SIGHUP from now on; call it before the first thread starts.
    ///
    /// A second one ends the process at once.
    init() throws(Ending) {
        let ending = [Signal.interrupt, .terminate, .hangUp].filter { !Signals.isIgnored($0) }
        let signals = Signals.block()
        do throws(SystemError) {
            try SpoolgatePosix.Thread.start(name: "signals") { [self] in
                while true {
                    guard ending.contains(signals.next()) else { continue }
                    let isSecond = state.update { state in
                        defer { state.isAsked = true }
                        return state.isAsked
                    }
                    if isSecond { _exit(Ending.Code.later.rawValue) }
                    state.update { $0.action }?()
                }
            }
        } catch {
            throw Ending(.later, "\(error); try again later")
        }
    }

    /// Whether it was asked.
    var isAsked: Bool { state.updateQuietly(\.isAsked) }

    /// Has `action` run when it is asked; at once where it was already.
    func onAsked(_ action: @escaping @Sendable () -> Void) {
        let isAsked = state.update { state in
            state.action = action
            return state.isAsked
        }
        if isAsked { action() }
    }

    /// Waits until a moment of the wall clock, whoever sets it, and tells so.
    ///
    /// - Parameters:
    ///   - moment: when `what` may begin; nil: at once.
    ///   - what: the upload, or the download.
    ///   - told: told for how long it waits, and why.
    /// - Returns: why it does not begin, where somebody asked to end before; nil: it may.
    func wait(
        until moment: WallTime?,
        toBegin what: String,
        _ told: (Duration, String) -> Void
    ) -> String? {
        guard let moment, moment > .now else { return nil }
        let seconds = moment.seconds - WallTime.now.seconds
        told(.seconds(seconds), "the start time is \(moment)")
        while !isAsked {
            let left = moment.seconds - WallTime.now.seconds
            guard left > 0 else { return nil }
            _ = state.wait(until: .after(.seconds(min(left, 10))), isQuiet: true) {
                $0.isAsked ? true : nil
            }
        }
        return "stopped before \(moment), the start time of \(what)"
    }
}
