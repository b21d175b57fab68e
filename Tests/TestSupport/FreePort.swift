// Ports of this machine for servers that cannot choose one and tell it.

import Foundation
import SpoolgatePosix
import Synchronization

/// Ports that nobody listens on.
package enum FreePort {
    package struct None: Error {}

    /// Below those that the kernel gives to outgoing connections, which could take one between here and
    /// the server that it is for; and never the same twice in a run, nor in two at a time.
    private static let ports = 15_000..<32_000
    /// A file of which each run has those bytes locked that are at its ports; -1: it cannot be had.
    private static let taken = open(
        "/tmp/spoolgate-test-ports",
        O_RDWR | O_CREAT | O_CLOEXEC,
        0o666
    )
    private static let next = Mutex(Int.random(in: ports))

    /// Takes ports for the rest of the run.
    package static func take(_ count: Int) throws -> [Int] {
        try (0..<count).map { _ in
            for _ in ports {
                let port = next.withLock { next in
                    next = next + 1 < ports.upperBound ? next + 1 : ports.lowerBound
                    return next
                }
                if isOurs(port), isFree(port) { return port }
            }
            throw None()
        }
    }

    private static func isOurs(_ port: Int) -> Bool {
        var lock = flock()
        lock.l_type = Int16(F_WRLCK)
        lock.l_whence = Int16(SEEK_SET)
        (lock.l_start, lock.l_len) = (off_t(port), 1)
        return taken < 0 || fcntl(taken, F_SETLK, &lock) == 0
    }

    private static func isFree(_ port: Int) -> Bool {
        guard let socket = try? StreamSocket(listeningOn: .port(UInt16(port))) else { return false }
        socket.close()
        return true
    }
}
