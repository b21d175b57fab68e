// A signal from one thread to another that waits for a socket.
//
// Invariant: an alarm that rang is heard once, however often it rang.

import CSpoolgateLinux
import Glibc

/// What ends another thread's wait for a connection early (eventfd(2)).
///
/// Any thread rings; one thread hears.
package final class Alarm: Sendable {
    private let event: Descriptor

    /// Makes one that has not rung.
    ///
    /// - Throws: `SystemError` if the process or the system has no room for a descriptor.
    package init() throws(SystemError) {
        event = Descriptor(
            owning: try SystemError.check(spoolgate_event(), "eventfd", on: "an alarm")
        )
    }

    /// Ends the wait under way, or the next one.
    package func ring() {
        var one: UInt64 = 1
        // It fails only if the alarm has rung 2^64 - 2 times and nobody heard.
        _ = write(event.number, &one, MemoryLayout<UInt64>.size)
    }

    /// Waits until the alarm rings, or there is something to read on a socket, no longer than `limit`.
    ///
    /// A signal ends the wait as the alarm does.
    func wait(orReadable socket: Int32, within limit: Duration) -> Connection.Wait {
        let milliseconds = Int32(clamping: max(1, limit.wholeMilliseconds))
        switch spoolgate_wait_for_either(socket, event.number, milliseconds) {
        case 1:
            var count: UInt64 = 0
            _ = read(event.number, &count, MemoryLayout<UInt64>.size)
            return .alarm
        case 0: return .nothing
        // An error of poll(2) is told by the next read of the socket.
        default: return .readable
        }
    }
}
