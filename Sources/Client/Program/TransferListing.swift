// `--list`: unfinished transfers.

import SpoolgatePosix
import SpoolgateTextFormats

enum TransferListing {
    /// Prints one line for each transfer, oldest first, or a message on standard error if there are none.
    static func report(_ kind: TransferState.Kind) throws(Ending) {
        let states = try StateDirectory()
        let transfers = try states.all().filter { $0.state.kind == kind }
        let journals = kind == .upload ? try states.journals() : []
        if transfers.isEmpty, journals.isEmpty {
            let noun = kind == .upload ? "uploads" : "downloads"
            // A failure cannot be reported.
            try? StandardError().write(line: "No interrupted \(noun).", .notice)
        }
        for (state, isInUse) in transfers {
            let ends = [state.file, state.url]
            let words = kind == .upload ? ends : ends.reversed()
            let received = ByteSize.rounded(state.received)
            let total = state.total.map { "/" + ByteSize.rounded($0) } ?? ""
            let what =
                isInUse
                ? "running"
                : state.unknownOutcome != nil
                    ? "outcome unknown" : state.token == nil ? "not started" : "can be resumed"
            print(
                "\(state.begun)  \(received)\(total)  \(what)  "
                    + words.joined(separator: " ").forTerminal
            )
        }
        for (content, isInUse) in journals {
            let entries = content.entries.values
            let unknown = entries.count { $0.unknownOutcome != nil }
            let what = isInUse ? "running" : unknown > 0 ? "outcome unknown" : "can be resumed"
            let words = (content.command?.arguments ?? []) + [content.command?.url ?? ""]
            print(
                "\(content.begun)  \(entries.count { $0.done != nil }) uploaded, "
                    + "\(entries.count { $0.token != nil }) begun  \(what)  "
                    + words.map { FilePath(text: $0).shown }.joined(separator: " ")
            )
        }
    }
}
