// Ports of this machine for servers that cannot choose and report one themselves.

import Foundation
import SpoolgatePosix
import Synchronization

/// Ports that are free.
package enum FreePort {
    package struct None: Error {}

    // Below the kernel's ephemeral ports, which outgoing connections could take first. A port is used once per run, and
    // by one run at a time.
    private static let ports = 15_000..<32_000
    /// Each run locks the bytes at its ports' offsets in this file; -1 if it cannot be opened.
    private static let taken = open(
        "/tmp/spoolgate-test-ports",
        O_RDWR | O_CREAT | O_CLOEXEC,
        0o666
    )
    private static let next = Mutex(Int.random(in: ports))

    /// Reserves ports for the rest of the run.
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
