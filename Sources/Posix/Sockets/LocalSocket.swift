// Whether somebody listens on a unix socket; nothing is said to them.

import CLinux
import Glibc

/// Unix sockets from outside.
package enum LocalSocket {
    /// Whether somebody listens on the socket at `path`; also true where this process may not ask.
    package static func isListening(_ path: String) -> Bool {
        let number = spoolgate_unix_socket()
        guard number >= 0 else { return true }
        defer { close(number) }
        return spoolgate_unix_probe(number, path, path.utf8.count) == 0 || errno != ECONNREFUSED
    }
}
