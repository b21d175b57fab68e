// What happens during a transfer, for the file that the next run reads and for whoever watches this one.
//
// The invariant: a token that may not be lost is durable before the transfer goes on.

import ResumableUpload
import SpoolgatePosix

/// Writes a state as a transfer goes on.
///
/// Used by the thread of the transfer.
final class StateKeeper: @unchecked Sendable {
    private let file: StateFile?
    private let isDurable: Bool
    private var next = Deadline.after(.seconds(1))

    /// Keeps nothing where there is no file; with `isDurable` no power cut takes a token.
    init(_ file: StateFile?, isDurable: Bool = true) {
        self.file = file
        self.isDurable = isDurable
    }

    /// What takes the events of a transfer: keeps what the next run needs, and has `report` show them.
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
        // A disk without room keeps nobody from going on; the next run begins anew then.
        try? file.save(isDurable: isDurable || token == nil)
    }

    /// How far it is, for `--list`, now and then.
    private func note(_ progress: Transfer.Progress) {
        guard let file else { return }
        file.state.received = progress.received
        file.state.total = progress.total
        guard next.hasPassed else { return }
        next = .after(.seconds(5))
        try? file.save(isDurable: false)
    }
}
