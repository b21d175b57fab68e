// What a path leads to, before anything is opened.

import Glibc

/// What kind of file a path leads to, links followed.
package enum FileKind: Sendable, Equatable {
    /// Nothing, or nothing that this process may see.
    case missing
    /// A regular file.
    case regular
    /// A directory.
    case directory
    /// A FIFO.
    case pipe
    /// A device or a socket.
    case other

    /// Looks at `path`.
    package init(of path: String) {
        var status = stat()
        guard stat(path, &status) == 0 else {
            self = .missing
            return
        }
        switch status.st_mode & S_IFMT {
        case S_IFREG: self = .regular
        case S_IFDIR: self = .directory
        case S_IFIFO: self = .pipe
        default: self = .other
        }
    }
}
