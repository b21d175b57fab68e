// Lets many threads wait for a listener and idle connections.
//
// Invariant: each event wakes one thread, and a socket reports no further event until it is watched again.

import CSpoolgateLinux
import Glibc

/// Sockets on which any number of threads can wait (epoll(7)).
package final class EventPoll: Sendable {
    private let epoll: Descriptor
    /// A pipe that becomes readable, for all threads, when its other end is closed.
    private let wakeUp: Descriptor
    private let wakeUpEnd: Monitor<Descriptor?>
    /// A pipe that is always readable, and watched only while `isServed` tests the threads.
    private let wakeup: Descriptor
    /// The number of test events taken.
    private let wakeups = Monitor<UInt64>(0)

    /// The tokens of the two pipes.
    private static let over = UInt64.max
    private static let wakeupToken = UInt64.max - 1

    /// A socket that has become ready.
    package struct Event: Sendable {
        package let token: UInt64
        /// Whether the peer has closed its sending side.
        ///
        /// Unread bytes may still precede the end.
        package let isHungUp: Bool
    }

    /// Creates an empty set.
    ///
    /// - Throws: `SystemError` if the system has no room for the set.
    package init() throws(SystemError) {
        let subject = "connections"
        epoll = Descriptor(
            owning: try SystemError.check(spoolgate_epoll(), "epoll_create1", on: subject)
        )
        let pipe = try Pipe(for: subject)
        let status = spoolgate_epoll_watch(epoll.number, pipe.source.number, Self.over, 1)
        try SystemError.check(status, "epoll_ctl", on: subject)
        wakeUp = pipe.source
        wakeUpEnd = Monitor(pipe.sink)
        // The other end is closed at once, so that the pipe stays readable.
        let closed = try Pipe(for: subject)
        wakeup = closed.source
    }

    /// Watches a listener for one event: the next connection or the listener's end.
    ///
    /// - Throws: `SystemError` if the system has no room for the watch.
    package func watch(_ listener: borrowing Listener, as token: UInt64) throws(SystemError) {
        try watch(listener.descriptor.number, token, "the listening socket")
    }

    /// Watches a connection for one event: the next byte or the connection's end.
    ///
    /// Closing the connection ends the watch.
    ///
    /// - Throws: `SystemError` if the system has no room for the watch.
    package func watch(_ connection: Connection, as token: UInt64) throws(SystemError) {
        try watch(connection.number, token, "a connection")
    }

    private func watch(
        _ number: Int32,
        _ token: UInt64,
        _ subject: String
    ) throws(SystemError) {
        precondition(token < Self.wakeupToken, "this token is reserved")
        let status = spoolgate_epoll_watch(epoll.number, number, token, 0)
        try SystemError.check(status, "epoll_ctl", on: subject)
    }

    /// Waits for the next event.
    ///
    /// - Returns: the event; nil if the wait was ended by `wakeAll`, by a test of `isServed` or by a signal.
    package func next() -> Event? {
        var (token, isHungUp) = (Self.over, Int32(0))
        let count = spoolgate_epoll_wait(epoll.number, &token, &isHungUp)
        guard count > 0, token != Self.over else { return nil }
        guard token != Self.wakeupToken else {
            wakeups.update { $0 += 1 }
            return nil
        }
        return Event(token: token, isHungUp: isHungUp != 0)
    }

    /// Tests whether threads still take events.
    ///
    /// Returns true if a thread takes a test event within `patience`.
    package func isServed(within patience: Duration) -> Bool {
        let before = wakeups.update { $0 }
        guard spoolgate_epoll_watch(epoll.number, wakeup.number, Self.wakeupToken, 0) == 0 else {
            return false
        }
        return wakeups.wait(until: .after(patience), isQuiet: true) { $0 == before ? nil : true }
            ?? false
    }

    /// Ends all current and future waits.
    package func wakeAll() { wakeUpEnd.updateQuietly { $0 = nil } }
}
