// Standard error, with a priority for each line if the journal reads it.
//
// The journal reads `<N>` at the start of a line (sd-daemon(3)). Invariant: lines never mix.

import Glibc

/// This process's standard error.
package struct StandardError: Sendable {
    /// The priority of a line, as in syslog(3).
    package enum Priority: Int, Sendable {
        /// The program cannot continue.
        case critical = 2
        /// An event that requires an operator's attention.
        case error = 3
        /// An event that requires attention if the event recurs.
        case warning = 4
        /// A rare but normal event.
        case notice = 5
        case informational = 6
        case debug = 7
    }

    package let isJournal: Bool

    /// Detects whether standard error is the journal's stream, which `JOURNAL_STREAM` names as `device:inode`.
    ///
    /// The variable may be set although standard error has been redirected.
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
    /// `line` must contain no line end. The priority is written only if standard error is connected to the journal.
    ///
    /// - Throws: `SystemError` if the line could not be written completely.
    package func write(line: String, _ priority: Priority) throws(SystemError) {
        let bytes = Array(((isJournal ? "<\(priority.rawValue)>" : "") + line + "\n").utf8)
        guard Glibc.write(STDERR_FILENO, bytes, bytes.count) == bytes.count else {
            throw SystemError("write", on: "standard error")
        }
    }
}
