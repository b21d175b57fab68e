// What many threads wait on together: a listener and connections on which nothing happens for now.
//
// It knows tokens, not what they stand for. Invariant: each event wakes one thread, and nothing is told a
// second time before it is watched again.

import CSpoolgateLinux
import Glibc

/// Sockets that are waited for, by any number of threads at a time (epoll(7)).
package final class EventPoll: Sendable {
    private let epoll: Descriptor
    /// A pipe that is readable, for everybody, once its other end is closed.
    private let wakeUp: Descriptor
    private let wakeUpEnd: Monitor<Descriptor?>
    /// A pipe that is always readable, watched for one event at a time.
    private let question: Descriptor
    /// How many such events were taken.
    private let answers = Monitor<UInt64>(0)

    /// What tokens are not.
    private static let over = UInt64.max
    private static let asked = UInt64.max - 1

    /// What has become ready.
    package struct Event: Sendable {
        /// What `watch` was given.
        package let token: UInt64
        /// Whether the peer has closed its side; there may be bytes before that.
        package let isHungUp: Bool
    }

    /// Begins with nothing to wait for.
    /// - Throws: `SystemError` when the process or the system has no room for it.
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
        // Its other end is closed at once.
        let closed = try Pipe(for: subject)
        question = closed.source
    }

    /// Watches a listener for the next connection, or its end.
    /// - Throws: `SystemError` when the system has no room for it.
    package func watch(_ listener: borrowing Listener, as token: UInt64) throws(SystemError) {
        try watch(listener.descriptor.number, token, "the listening socket")
    }

    /// Watches a connection for the next byte, or its end.
    ///
    /// It is watched no more once it is closed.
    /// - Throws: `SystemError` when the system has no room for it.
    package func watch(_ connection: Connection, as token: UInt64) throws(SystemError) {
        try watch(connection.number, token, "a connection")
    }

    private func watch(
        _ number: Int32,
        _ token: UInt64,
        _ subject: String
    ) throws(SystemError) {
        precondition(token < Self.asked, "a token is taken")
        let status = spoolgate_epoll_watch(epoll.number, number, token, 0)
        try SystemError.check(status, "epoll_ctl", on: subject)
    }

    /// Waits for the next event.
    /// - Returns: nil where `wakeAll` or `isServed` was called, or a signal came.
    package func next() -> Event? {
        var (token, isHungUp) = (Self.over, Int32(0))
        let count = spoolgate_epoll_wait(epoll.number, &token, &isHungUp)
        guard count > 0, token != Self.over else { return nil }
        guard token != Self.asked else {
            answers.update { $0 += 1 }
            return nil
        }
        return Event(token: token, isHungUp: isHungUp != 0)
    }

    /// Whether some thread takes up events: one that is made for this is taken within `patience`.
    package func isServed(within patience: Duration) -> Bool {
        let before = answers.update { $0 }
        guard spoolgate_epoll_watch(epoll.number, question.number, Self.asked, 0) == 0 else {
            return false
        }
        return answers.wait(until: .after(patience), isQuiet: true) { $0 == before ? nil : true }
            ?? false
    }

    /// Ends every wait, now and from now on.
    package func wakeAll() { wakeUpEnd.updateQuietly { $0 = nil } }
}
