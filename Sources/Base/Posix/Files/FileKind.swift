// The kind of a file, determined without opening it.

import Glibc

/// The kind of a file; links are followed.
package enum FileKind: Sendable, Equatable {
    /// The file is missing or inaccessible.
    case missing
    case regular
    case directory
    /// A FIFO.
    case pipe
    /// A device or a socket.
    case other

    /// Determines the kind of the file at `path`.
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
