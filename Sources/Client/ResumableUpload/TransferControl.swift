// Lets the owner of a transfer pause or cancel its run.
//
// The invariants: at most one thread runs the transfer at a time, and a `Wish` applies only to the current run.

import SpoolgatePosix

final class TransferControl: Sendable {
    enum Wish: Sendable {
        case run, pause, cancel
    }

    private struct State {
        var wish = Wish.run
        var isRunning = false
        var awaiting: [CheckedContinuation<Void, Never>] = []
        var whenRequested: (@Sendable () -> Void)?
    }

    private let state = Monitor(State())

    var wish: Wish { state.updateQuietly(\.wish) }
    var isStopped: Bool { wish != .run }

    /// Passes `wish` to the run without waiting.
    ///
    /// Only the first call during a run has an effect.
    func request(_ wish: Wish) {
        let action = state.update { state -> (@Sendable () -> Void)? in
            guard state.isRunning, state.wish == .run else { return nil }
            state.wish = wish
            defer { state.whenRequested = nil }
            return state.whenRequested
        }
        action?()
    }

    /// Calls `action` when the owner asks the run to end, or at once if the owner already has.
    func whenRequested(_ action: @escaping @Sendable () -> Void) {
        let isRequested = state.updateQuietly { state in
            if state.wish == .run { state.whenRequested = action }
            return state.wish != .run
        }
        if isRequested { action() }
    }

    /// Waits for `duration`, or until the owner asks the run to end.
    func wait(_ duration: Duration) {
        _ = state.wait(until: .after(duration), isQuiet: true) { $0.wish == .run ? nil : true }
    }

    /// Begins a run; returns false if one is already in progress.
    func begin() -> Bool {
        state.updateQuietly { state in
            defer { state.isRunning = true }
            return !state.isRunning
        }
    }

    /// Ends the run, and discards the owner's instruction.
    func end() {
        let awaiting = state.update { state in
            let awaiting = state.awaiting
            state = State()
            return awaiting
        }
        for continuation in awaiting { continuation.resume() }
    }

    /// Waits until no run is in progress.
    func ended() async {
        await withCheckedContinuation { continuation in
            let isEnded = state.update { state in
                if state.isRunning { state.awaiting.append(continuation) }
                return !state.isRunning
            }
            if isEnded { continuation.resume() }
        }
    }
}

/// Determines the pauses between attempts, and when attempts end.
struct RetryBackoff {
    private let options: Transfer.Connection
    private var pause: Duration
    private var end: Deadline

    init(_ options: Transfer.Connection) {
        self.options = options
        pause = options.firstPause
        end = .after(options.retryFor)
    }

    mutating func progressed() { self = RetryBackoff(options) }

    /// Returns the pause; nil if it would last beyond the time for attempts.
    ///
    /// `stated` is the pause that the server requests.
    mutating func next(_ stated: Duration?) -> Duration? {
        // Clients that were disconnected together should not reconnect together.
        let next = stated ?? pause * Double.random(in: 0.75...1.25)
        pause = min(pause * 2, .seconds(60))
        return next < end.remaining ? next : nil
    }
}
