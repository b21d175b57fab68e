// `--list`: what can be resumed.

import SpoolgatePosix
import SpoolgateTextFormats

/// The list of one kind of transfers.
enum TransferListing {
    /// Prints a line for each, the oldest first.
    static func tell(_ kind: TransferState.Kind) throws(Ending) {
        for (state, isInUse) in try StateDirectory().all() where state.kind == kind {
            let ends = [state.file, state.url]
            let words = kind == .upload ? ends : ends.reversed()
            let received = ByteSize.rounded(state.received)
            let total = state.total.map { "/" + ByteSize.rounded($0) } ?? ""
            let what =
                isInUse
                ? "under way"
                : state.unknownOutcome != nil
                    ? "outcome unknown" : state.token == nil ? "not begun" : "can be resumed"
            print(
                "\(state.begun)  \(received)\(total)  \(what)  "
                    + words.joined(separator: " ").forTerminal
            )
        }
    }
}
