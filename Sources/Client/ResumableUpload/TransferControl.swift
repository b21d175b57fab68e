// What the owner of a transfer wants of it while it runs, and the one run of it.
//
// The invariant: at most one thread runs the transfer at a time.

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
    }

    private let state = Monitor(State())

    /// What the owner wants now.
    var wish: Wish { state.updateQuietly(\.wish) }
    /// Whether the transfer is to end.
    var isStopped: Bool { wish != .run }

    /// Asks for an end; the first wish counts.
    func ask(_ wish: Wish) {
        state.update { if $0.wish == .run { $0.wish = wish } }
    }

    /// Waits, but not after a wish.
    func wait(_ duration: Duration) {
        _ = state.wait(until: .after(duration), isQuiet: true) { $0.wish == .run ? nil : true }
    }

    /// Runs `body`; nil where another thread does.
    func run<R, E: Error>(_ body: () throws(E) -> R) throws(E) -> R? {
        let isFree = state.update { state in
            defer { state.isRunning = true }
            return !state.isRunning
        }
        guard isFree else { return nil }
        defer {
            let awaiting = state.update { state in
                state.isRunning = false
                state.wish = .run
                defer { state.awaiting = [] }
                return state.awaiting
            }
            for continuation in awaiting { continuation.resume() }
        }
        return try body()
    }

    /// Waits for the end of a run; at once where there is none.
    func ended() async {
        await withCheckedContinuation { continuation in
            let isOver = state.update { state in
                if state.isRunning { state.awaiting.append(continuation) }
                return !state.isRunning
            }
            if isOver { continuation.resume() }
        }
    }

    /// Runs blocking work on a thread of its own.
    static func onThread<R: Sendable>(
        _ name: String,
        _ body: @escaping @Sendable () -> Result<R, TransferError>
    ) async -> Result<R, TransferError> {
        await withCheckedContinuation { continuation in
            do throws(SystemError) {
                try Thread.start(name: name, stackSize: 512 * 1024) {
                    continuation.resume(returning: body())
                }
            } catch {
                let reason = "no thread for the transfer: \(error)"
                continuation.resume(returning: .failure(TransferError(.later, reason)))
            }
        }
    }
}

/// When a transfer is tried again, and until when.
struct RetryBackoff {
    private let options: ConnectionOptions
    private var pause: Duration
    private var end: Deadline

    init(_ options: ConnectionOptions) {
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
