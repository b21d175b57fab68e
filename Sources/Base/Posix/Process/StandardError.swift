// Standard error, with a priority for each line if the journal reads it.
//
// The journal reads `<N>` at the start of a line (sd-daemon(3)). Invariant: a line is written with one call, so that
// lines never mix.

import Glibc

/// This process's standard error.
package struct StandardError: Sendable {
    /// The priority of a line, as in syslog(3).
    package enum Priority: Int, Sendable {
        /// The program cannot continue.
        case critical = 2
        /// Requires an operator's attention.
        case error = 3
        /// Requires an operator's attention if it recurs.
        case warning = 4
        /// Rare, but normal.
        case notice = 5
        case informational = 6
        case debug = 7
    }

    package let isJournal: Bool

    /// Detects whether standard error is the journal's stream, which `JOURNAL_STREAM` names as `device:inode`.
    ///
    /// Standard error may have been redirected although the variable is set.
    package init(environment: (String) -> String? = Listener.processEnvironment) {
        var status = stat()
        guard let stream = environment("JOURNAL_STREAM"), fstat(STDERR_FILENO, &status) == 0 else {
            isJournal = false
            return
        }
        isJournal = stream == "\(status.st_dev):\(status.st_ino)"
    }

    /// Writes a line and its line end with one call.
    ///
    /// - Parameters:
    ///   - line: the text, without a line end.
    ///   - priority: the priority; written only if standard error is connected to the journal.
    /// - Throws: if the line could not be written completely.
    package func write(line: String, _ priority: Priority) throws(SystemError) {
        let bytes = Array(((isJournal ? "<\(priority.rawValue)>" : "") + line + "\n").utf8)
        guard Glibc.write(STDERR_FILENO, bytes, bytes.count) == bytes.count else {
            throw SystemError("write", on: "standard error")
        }
    }
}
