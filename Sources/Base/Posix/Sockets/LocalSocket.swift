// Checks Unix sockets without sending data.

import CSpoolgateLinux
import Glibc

/// Checks of Unix sockets.
package enum LocalSocket {
    /// Whether a process listens on the socket at `path`; also true if this process has no permission to connect.
    ///
    /// - Throws: `SystemError` if no descriptor is available.
    package static func isListening(_ path: String) throws(SystemError) -> Bool {
        let number = try SystemError.check(spoolgate_unix_socket(), "socket", on: path)
        let probe = Descriptor(owning: number)
        return spoolgate_unix_probe(probe.number, path, path.utf8.count) == 0
            || errno != ECONNREFUSED
    }
}
