// Whether somebody listens on a unix socket; nothing is said to them.

import CSpoolgateLinux
import Glibc

/// Unix sockets from outside.
package enum LocalSocket {
    /// Whether somebody listens on the socket at `path`; also true where this process may not ask.
    /// - Throws: `SystemError` where there is no descriptor to ask with.
    package static func isListening(_ path: String) throws(SystemError) -> Bool {
        let number = try SystemError.check(spoolgate_unix_socket(), "socket", on: path)
        let probe = Descriptor(owning: number)
        return spoolgate_unix_probe(probe.number, path, path.utf8.count) == 0
            || errno != ECONNREFUSED
    }
}
