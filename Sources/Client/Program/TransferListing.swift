// `--list`: what can be resumed.

import SpoolgatePosix
import SpoolgateTextFormats

/// The list of one kind of transfers.
enum TransferListing {
    /// Prints a line for each, the oldest first; if there is none, says so on standard error.
    static func tell(_ kind: TransferState.Kind) throws(Ending) {
        let transfers = try StateDirectory().all().filter { $0.state.kind == kind }
        if transfers.isEmpty {
            let noun = kind == .upload ? "uploads" : "downloads"
            // If it cannot be written, there is no reader.
            try? StandardError().write(line: "There are no interrupted \(noun).", .notice)
        }
        for (state, isInUse) in transfers {
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
