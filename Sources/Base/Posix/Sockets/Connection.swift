// One accepted connection: its limits, its end, and the letting-go from another thread.
//
// What it reads and writes means nothing here. Invariant: whatever another thread asks for
// reaches this connection or nothing, never one that got the same number later.

import CSpoolgateLinux
import Glibc

/// An accepted stream socket.
///
/// Used by the thread that serves it, but for `release`, `interrupt` and `cut`.
package final class Connection: Sendable {
    /// The number, for a library that reads and writes the socket itself; not valid after `close`.
    package let number: Int32
    private let state: Monitor<State>

    private struct State: ~Copyable {
        var descriptor: Descriptor?
        var isReleased = false
        var isWaiting = false
    }

    /// Takes over an open socket.
    package init(_ descriptor: consuming Descriptor) {
        number = descriptor.number
        state = Monitor(State(descriptor: consume descriptor))
    }

    /// Connects to a Unix socket, without waiting for room at the listener.
    /// - Throws: `SystemError` where nobody listens there, or this process may not.
    package static func open(unix path: String) throws(SystemError) -> Connection {
        let number = try SystemError.check(spoolgate_unix_socket(), "socket", on: path)
        let descriptor = Descriptor(owning: number)
        let status = spoolgate_unix_probe(descriptor.number, path, path.utf8.count)
        try SystemError.check(status, "connect", on: path)
        var isNonblocking: Int32 = 0
        _ = ioctl(descriptor.number, UInt(FIONBIO), &isNonblocking)
        return Connection(descriptor)
    }

    /// Whether this connection was asked to let go.
    package var isReleased: Bool { state.updateQuietly { $0.isReleased } }

    /// Asks for an end of receiving, from any thread: no `beginWaiting` succeeds from now on.
    ///
    /// - Returns: whether a thread waits for this connection now; it does not notice before something
    ///   comes, or `interrupt` is called.
    package func release() -> Bool {
        state.updateQuietly {
            $0.isReleased = true
            return $0.isWaiting
        }
    }

    /// Says that this thread is about to wait for the peer.
    /// - Returns: false if it must not, because the connection was asked to let go.
    package func beginWaiting() -> Bool {
        state.updateQuietly {
            $0.isWaiting = !$0.isReleased
            return $0.isWaiting
        }
    }

    /// Says that this thread waits no more.
    package func stopWaiting() { state.updateQuietly { $0.isWaiting = false } }

    /// Ends the wait of a connection that was asked to let go, from any thread.
    ///
    /// Its read returns with what is there and then with the end; sending goes on. A peer that goes
    /// on sending gets an error, which is why this comes only when it seems to be silent. Without
    /// effect when nobody waits.
    package func interrupt() {
        // Inside the lock, here and below, so that the number cannot be closed and given away in
        // between; shutdown(2) does not wait.
        state.updateQuietly {
            guard $0.isReleased, $0.isWaiting, $0.descriptor != nil else { return }
            _ = shutdown(number, Int32(SHUT_RD))
        }
    }

    /// Sends what is no FastCGI record, without waiting.
    ///
    /// A web server takes a response without a length for whole when its connection just ends; this
    /// tells it that it is not, and it breaks the client's connection.
    package func spoil() {
        // Where it cannot be sent, the peer is gone or behind, and the end of the connection must do.
        _ = sendAtOnce([UInt8](repeating: 0xff, count: 8))
    }

    /// Ends receiving and sending, from any thread.
    ///
    /// Harmless after `close`.
    package func cut() {
        state.updateQuietly {
            $0.isReleased = true
            if $0.descriptor != nil { _ = shutdown(number, Int32(SHUT_RDWR)) }
        }
    }

    /// Closes the socket.
    ///
    /// Harmless when it is closed.
    package func close() {
        state.updateQuietly { $0.descriptor = nil }
    }

    /// Ends sending and reads what the peer still sends until it closes, so that it can read all of
    /// what was sent to it; then closes.
    ///
    /// - Parameters:
    ///   - idle: ends when nothing came for so long.
    ///   - total: ends after so long in any case.
    package func linger(idle: Duration, total: Duration) {
        defer { close() }
        guard shutdown(number, Int32(SHUT_WR)) == 0 else { return }
        let deadline = Deadline.after(total)
        let idleMilliseconds = Int32(clamping: idle.atLeastOneMillisecond)
        var entry = pollfd(fd: number, events: Int16(POLLIN), revents: 0)
        withUnsafeTemporaryAllocation(byteCount: 16 * 1024, alignment: 16) { scrap in
            while !deadline.hasPassed, poll(&entry, 1, idleMilliseconds) > 0,
                recv(number, scrap.baseAddress, scrap.count, Int32(MSG_DONTWAIT)) > 0
            {}
        }
    }

    /// Ends a read in which no byte came for `timeout`; it then fails with EAGAIN.
    package func setReceiveTimeout(_ timeout: Duration) {
        _ = setTimeout(of: number, SO_RCVTIMEO, milliseconds: timeout.atLeastOneMillisecond)
    }

    /// Ends a write in which no byte could be sent for `timeout`; it then fails with EAGAIN.
    package func setSendTimeout(_ timeout: Duration) {
        _ = setTimeout(of: number, SO_SNDTIMEO, milliseconds: timeout.atLeastOneMillisecond)
    }

    /// Bytes that can be read without waiting.
    package var readableBytes: Int {
        var count: Int32 = 0
        return ioctl(number, UInt(FIONREAD), &count) < 0 ? 0 : Int(max(0, count))
    }

    /// Whether there is something to read, or the end, before `limit` has passed.
    package func isReadable(within limit: Duration) -> Bool {
        var entry = pollfd(fd: number, events: Int16(POLLIN), revents: 0)
        return poll(&entry, 1, Int32(clamping: limit.atLeastOneMillisecond)) > 0
    }

    /// What ended a wait for the peer or for another thread.
    package enum Wait {
        /// The alarm rang.
        case alarm
        /// There is something to read, or the end.
        case readable
        /// Neither within the limit.
        case nothing
    }

    /// Waits until there is something to read, or the end, or `alarm` rings, no longer than `limit`.
    package func wait(or alarm: Alarm, within limit: Duration) -> Wait {
        alarm.wait(orReadable: number, within: limit)
    }

    /// Whether the peer has closed the connection.
    ///
    /// A peer that closed only its sending side counts, unless this side has been released: then
    /// the two cannot be told apart.
    package var isHungUp: Bool { spoolgate_is_hung_up(number, isReleased ? 1 : 0) > 0 }

    /// Gives the socket to a new value for what comes next on it; this one is as if closed.
    ///
    /// Whoever still has this one, to release or to cut it, reaches nothing any more.
    /// - Returns: nil where it is closed.
    package func handedOn() -> Connection? {
        guard let descriptor = state.updateQuietly({ $0.descriptor.take() }) else { return nil }
        return Connection(descriptor)
    }

    /// Sends a few bytes without waiting.
    /// - Returns: whether all of them are on their way.
    package func sendAtOnce(_ bytes: [UInt8]) -> Bool {
        Glibc.send(number, bytes, bytes.count, Int32(MSG_DONTWAIT | MSG_NOSIGNAL)) == bytes.count
    }

    /// What one read brought.
    package enum Arrival: Equatable {
        /// So many bytes, at least one.
        case bytes(Int)
        /// The peer has closed its side.
        case end
        /// No byte came within the limit on receiving, or none was there.
        case nothing
        /// The connection broke.
        case failed
    }

    /// Reads what is there, up to the room in two places.
    ///
    /// - Parameters:
    ///   - first: where bytes go first; may be empty.
    ///   - second: where bytes go once `first` is full; may be empty, but not both are.
    ///   - waits: whether to wait for the first byte, for as long as `setReceiveTimeout` says.
    /// - Returns: what came.
    package func receive(
        into first: UnsafeMutableRawBufferPointer,
        then second: UnsafeMutableRawBufferPointer = .init(start: nil, count: 0),
        waits: Bool
    ) -> Arrival {
        let count = spoolgate_receive(
            number,
            first.baseAddress,
            first.count,
            second.baseAddress,
            second.count,
            waits ? 1 : 0
        )
        if count > 0 { return .bytes(Int(count)) }
        if count == 0 { return .end }
        return errno == EAGAIN ? .nothing : .failed
    }

    /// Sends all bytes of both parts, `first` first; waits for a peer that does not read as long as
    /// `setSendTimeout` says.
    ///
    /// - Returns: false where the peer left, or does not read.
    package func send(_ first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer) -> Bool {
        spoolgate_send(number, first.baseAddress, first.count, second.baseAddress, second.count)
            == 0
    }

    /// Sends a few bytes, as above, and with them a descriptor, of which the peer gets one of its own.
    ///
    /// The socket must be a Unix socket.
    package func send(_ bytes: [UInt8], passing descriptor: borrowing Descriptor) -> Bool {
        spoolgate_send_descriptor(number, bytes, bytes.count, descriptor.number) == 0
    }

    /// Sends all of a few bytes, as above.
    package func send(_ bytes: [UInt8]) -> Bool {
        bytes.withUnsafeBytes { send($0, UnsafeRawBufferPointer(start: nil, count: 0)) }
    }
}

/// Ends reads (SO_RCVTIMEO) or writes (SO_SNDTIMEO) of a socket in which nothing moves for so long.
func setTimeout(of socket: Int32, _ option: Int32, milliseconds: Int64) -> Int32 {
    let (seconds, rest) = milliseconds.quotientAndRemainder(dividingBy: 1_000)
    var time = timeval(tv_sec: Int(seconds), tv_usec: Int(rest) * 1_000)
    return setsockopt(socket, SOL_SOCKET, option, &time, socklen_t(MemoryLayout<timeval>.size))
}

extension Duration {
    /// In milliseconds, so that a short limit does not become none.
    fileprivate var atLeastOneMillisecond: Int64 { max(1, wholeMilliseconds) }
}
