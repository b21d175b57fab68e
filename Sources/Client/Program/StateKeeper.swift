// Handles the events of a transfer: keeps the state for the next run, and reports progress.
//
// The invariant: a token that must not be lost is durable before the transfer continues.

import ResumableUpload
import SpoolgatePosix

/// Keeps the state of a transfer; used only by the transfer's thread.
final class StateKeeper: @unchecked Sendable {
    private let file: StateFile?
    private let isDurable: Bool
    private var next = Deadline.after(.seconds(1))

    /// Keeps nothing if `file` is nil; each token is durable if `isDurable` is true.
    init(_ file: StateFile?, isDurable: Bool = true) {
        self.file = file
        self.isDurable = isDurable
    }

    func handler<Token>(
        _ report: ProgressReport,
        text: @escaping @Sendable (Token) -> String
    ) -> @Sendable (Transfer.Event<Token>) -> Void {
        { [self] event in
            switch event {
            case .resumable(let token): keep(text(token))
            case .progress(let progress):
                note(progress)
                report.note(progress)
            case .waiting(let duration, let reason): report.wait(duration, reason)
            case .begunAnew(let reason):
                keep(nil)
                report.beginAnew(reason)
            }
        }
    }

    private func keep(_ token: String?) {
        guard let file else { return }
        file.state.token = token
        if token == nil { (file.state.received, file.state.total) = (0, nil) }
        // A full disk does not stop the transfer, but if the transfer is interrupted, the next run starts again.
        try? file.save(isDurable: isDurable || token == nil)
    }

    /// Saves the progress for `--list`, at most every five seconds.
    private func note(_ progress: Transfer.Progress) {
        guard let file else { return }
        file.state.received = progress.received
        file.state.total = progress.total
        guard next.hasPassed else { return }
        next = .after(.seconds(5))
        try? file.save(isDurable: false)
    }
}
