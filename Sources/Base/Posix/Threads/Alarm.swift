// Alarms for waiting threads.

import CSpoolgateLinux
import Glibc

/// Ends another thread's wait for a connection early (eventfd(2)).
///
/// Any thread may ring an alarm. One thread receives the alarm, once, regardless of the number of rings.
package final class Alarm: Sendable {
    private let event: Descriptor

    /// Creates a silent alarm.
    ///
    /// - Throws: `SystemError` if the process or the system has run out of descriptors.
    package init() throws(SystemError) {
        event = Descriptor(
            owning: try SystemError.check(spoolgate_event(), "eventfd", on: "an alarm")
        )
    }

    /// Ends the current wait or, if no thread is waiting, the next one.
    package func ring() {
        var one: UInt64 = 1
        // The write fails only after 2^64 - 2 calls.
        _ = write(event.number, &one, MemoryLayout<UInt64>.size)
    }

    /// Waits up to `limit` until the alarm rings or the socket is readable.
    ///
    /// A signal to the process also ends the wait, like the alarm.
    func wait(orReadable socket: Int32, within limit: Duration) -> Connection.Wait {
        let milliseconds = Int32(clamping: max(1, limit.wholeMilliseconds))
        switch spoolgate_wait_for_either(socket, event.number, milliseconds) {
        case 1:
            var count: UInt64 = 0
            _ = read(event.number, &count, MemoryLayout<UInt64>.size)
            return .alarm
        case 0: return .nothing
        // The next read of the socket reports an error of poll(2).
        default: return .readable
        }
    }
}
