// Standard error: one line, one call, its priority in front where the journal reads it.
//
// Under a service manager standard error is a stream to its journal, which takes the time by itself and
// the priority from `<N>` at a line's beginning (sd-daemon(3)). Invariant: a line is written by one
// call, so that lines of several threads and processes never mix.

import Glibc

/// This process's standard error.
package struct StandardError: Sendable {
    /// How much a line matters, by the numbers of syslog(3).
    package enum Priority: Int, Sendable {
        /// The program cannot go on.
        case critical = 2
        /// Wants a person.
        case error = 3
        /// Wants a person if it goes on.
        case warning = 4
        /// Seldom, and in order.
        case notice = 5
        /// Work that goes on.
        case informational = 6
        /// For whoever looks for a fault.
        case debug = 7
    }

    /// Whether the journal reads it.
    package let isJournal: Bool

    /// Looks where standard error leads: to the journal if it is the stream that `JOURNAL_STREAM` names as
    /// `device:inode`; somebody may have led it elsewhere since.
    package init(environment: (String) -> String? = Listener.processEnvironment) {
        var status = stat()
        guard let stream = environment("JOURNAL_STREAM"), fstat(STDERR_FILENO, &status) == 0 else {
            isJournal = false
            return
        }
        isJournal = stream == "\(status.st_dev):\(status.st_ino)"
    }

    /// Writes a line, its end included, by one call.
    ///
    /// - Parameters:
    ///   - line: the text, which must have no line end in it.
    ///   - priority: how much it matters; only the journal sees it.
    /// - Throws: where it could not be written whole.
    package func write(line: String, _ priority: Priority) throws(SystemError) {
        let bytes = Array(((isJournal ? "<\(priority.rawValue)>" : "") + line + "\n").utf8)
        guard Glibc.write(STDERR_FILENO, bytes, bytes.count) == bytes.count else {
            throw SystemError("write", on: "standard error")
        }
    }
}
