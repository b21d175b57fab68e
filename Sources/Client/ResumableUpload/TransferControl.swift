// What the owner of a transfer wants of it while it runs, and the one run of it.
//
// The invariants: at most one thread runs the transfer at a time, and a wish is for the run under way alone.

import SpoolgatePosix

/// The wishes of a transfer's owner, shared with its thread.
final class TransferControl: Sendable {
    /// What the owner wants.
    enum Wish: Sendable {
        case run, pause, cancel
    }

    private struct State {
        var wish = Wish.run
        var isRunning = false
        var awaiting: [CheckedContinuation<Void, Never>] = []
        /// Run once when there is a wish.
        var whenAsked: (@Sendable () -> Void)?
    }

    private let state = Monitor(State())

    /// What the owner wants now.
    var wish: Wish { state.updateQuietly(\.wish) }
    /// Whether the transfer is to end.
    var isStopped: Bool { wish != .run }

    /// Asks the run under way for an end; the first wish counts, and without a run none does.
    func ask(_ wish: Wish) {
        let action = state.update { state -> (@Sendable () -> Void)? in
            guard state.isRunning, state.wish == .run else { return nil }
            state.wish = wish
            defer { state.whenAsked = nil }
            return state.whenAsked
        }
        action?()
    }

    /// Has `action` run once there is a wish: at once if there is one already.
    func whenAsked(_ action: @escaping @Sendable () -> Void) {
        let isAsked = state.updateQuietly { state in
            if state.wish == .run { state.whenAsked = action }
            return state.wish != .run
        }
        if isAsked { action() }
    }

    /// Waits, but not after a wish.
    func wait(_ duration: Duration) {
        _ = state.wait(until: .after(duration), isQuiet: true) { $0.wish == .run ? nil : true }
    }

    /// Begins a run, which `end` ends; false while there is one.
    func begin() -> Bool {
        state.updateQuietly { state in
            defer { state.isRunning = true }
            return !state.isRunning
        }
    }

    /// Ends the run and forgets what was asked of it.
    func end() {
        let awaiting = state.update { state in
            let awaiting = state.awaiting
            state = State()
            return awaiting
        }
        for continuation in awaiting { continuation.resume() }
    }

    /// Waits for the end of a run; returns at once if there is none.
    func ended() async {
        await withCheckedContinuation { continuation in
            let isOver = state.update { state in
                if state.isRunning { state.awaiting.append(continuation) }
                return !state.isRunning
            }
            if isOver { continuation.resume() }
        }
    }
}

/// When a transfer is tried again, and until when.
struct RetryBackoff {
    private let options: Transfer.Connection
    private var pause: Duration
    private var end: Deadline

    init(_ options: Transfer.Connection) {
        self.options = options
        pause = options.firstPause
        end = .after(options.retryFor)
    }

    /// Begins anew after progress.
    mutating func progressed() { self = RetryBackoff(options) }

    /// The next pause; nil where it would last beyond the end.
    ///
    /// - Parameter told: what the server asked for.
    /// - Returns: how long to wait.
    mutating func next(_ told: Duration?) -> Duration? {
        // Clients that were cut together do not come back together.
        let next = told ?? pause * Double.random(in: 0.75...1.25)
        pause = min(pause * 2, .seconds(60))
        return next < end.remaining ? next : nil
    }
}
