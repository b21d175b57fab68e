// Stream sockets, and their release by other threads.
//
// Invariant: a call from another thread never affects a later connection with the same number.

import CSpoolgateLinux
import Glibc

/// An accepted stream socket.
///
/// Only one thread may use a connection, except for `release`, `interrupt` and `cut`.
package final class Connection: Sendable {
    /// The socket's descriptor number, for a library that uses the socket itself; invalid after `close`.
    package let number: Int32
    private let state: Monitor<State>

    private struct State: ~Copyable {
        var descriptor: Descriptor?
        var isReleased = false
        var isWaiting = false
    }

    /// Takes ownership of an open socket.
    package init(_ descriptor: consuming Descriptor) {
        number = descriptor.number
        state = Monitor(State(descriptor: consume descriptor))
    }

    /// Connects to a Unix socket, without waiting for space in its backlog.
    ///
    /// - Throws: `SystemError` if no process is listening on the socket, or if this process has no permission.
    package static func open(unix path: String) throws(SystemError) -> Connection {
        let number = try SystemError.check(spoolgate_unix_socket(), "socket", on: path)
        let descriptor = Descriptor(owning: number)
        let status = spoolgate_unix_probe(descriptor.number, path, path.utf8.count)
        try SystemError.check(status, "connect", on: path)
        var isNonblocking: Int32 = 0
        _ = ioctl(descriptor.number, UInt(FIONBIO), &isNonblocking)
        return Connection(descriptor)
    }

    package var isReleased: Bool { state.updateQuietly { $0.isReleased } }

    /// Asks the thread that serves this connection to stop receiving; may be called by any thread.
    ///
    /// From now on, `beginWaiting` returns false. Returns true if that thread is waiting for the peer. The thread then
    /// continues only when data arrives or `interrupt` is called.
    package func release() -> Bool {
        state.updateQuietly {
            $0.isReleased = true
            return $0.isWaiting
        }
    }

    /// Declares that this thread is about to wait for the peer.
    ///
    /// - Returns: false if this thread must not wait because `release` was called.
    package func beginWaiting() -> Bool {
        state.updateQuietly {
            $0.isWaiting = !$0.isReleased
            return $0.isWaiting
        }
    }

    /// Declares that this thread is no longer waiting.
    package func stopWaiting() { state.updateQuietly { $0.isWaiting = false } }

    /// Ends a thread's wait after `release`; may be called by any thread.
    ///
    /// The thread's read returns the pending bytes, then the end. Sending still works. A peer that continues to send
    /// gets an error, so call `interrupt` only for peers that appear idle.
    package func interrupt() {
        // The lock, here and below, prevents the reuse of `number`. shutdown(2) does not block.
        state.updateQuietly {
            guard $0.isReleased, $0.isWaiting, $0.descriptor != nil else { return }
            _ = shutdown(number, Int32(SHUT_RD))
        }
    }

    /// Marks the response as incomplete after the peer has received all sent bytes, for which it has up to `limit`.
    ///
    /// A web server treats a response without a length as complete when its connection ends. Resets a TCP connection.
    /// A Unix socket cannot be reset, so bytes follow that are not a valid FastCGI record. The web server then closes
    /// the client's connection.
    package func spoil(within limit: Duration) {
        let deadline = Deadline.after(limit)
        var entry = pollfd(fd: number, events: 0, revents: 0)
        // Ends early if the peer has closed the connection.
        while unreceived > 0, !deadline.hasPassed, poll(&entry, 1, 1) == 0 {}
        guard spoolgate_reset(number) != 0 else { return }
        // If sending fails, closing the connection must suffice.
        _ = sendAtOnce([UInt8](repeating: 0xff, count: 8))
    }

    /// The number of sent bytes that the peer's system has not acknowledged (TCP), or the memory of those that the peer
    /// has not read (Unix socket).
    private var unreceived: Int32 {
        var count: Int32 = 0
        return ioctl(number, UInt(TIOCOUTQ), &count) < 0 ? 0 : count
    }

    /// Ends receiving and sending at once; may be called by any thread, and does nothing after `close`.
    package func cut() {
        state.updateQuietly {
            $0.isReleased = true
            if $0.descriptor != nil { _ = shutdown(number, Int32(SHUT_RDWR)) }
        }
    }

    /// Closes the socket if it is still open.
    package func close() {
        state.updateQuietly { $0.descriptor = nil }
    }

    /// Ends sending, reads until the peer closes, so that the peer can receive all sent bytes, then closes.
    ///
    /// `idle` limits the time without received bytes, and `total` the whole time.
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

    /// Limits how long a read waits for a byte before it fails with EAGAIN.
    package func setReceiveTimeout(_ timeout: Duration) {
        _ = setTimeout(of: number, SO_RCVTIMEO, milliseconds: timeout.atLeastOneMillisecond)
    }

    /// Limits how long a write waits to send a byte before it fails with EAGAIN.
    package func setSendTimeout(_ timeout: Duration) {
        _ = setTimeout(of: number, SO_SNDTIMEO, milliseconds: timeout.atLeastOneMillisecond)
    }

    /// The number of bytes that can be read without waiting.
    package var readableBytes: Int {
        var count: Int32 = 0
        return ioctl(number, UInt(FIONREAD), &count) < 0 ? 0 : Int(max(0, count))
    }

    /// Waits up to `limit`; returns true as soon as bytes or the end of the connection can be read.
    package func isReadable(within limit: Duration) -> Bool {
        var entry = pollfd(fd: number, events: Int16(POLLIN), revents: 0)
        return poll(&entry, 1, Int32(clamping: limit.atLeastOneMillisecond)) > 0
    }

    /// The reason why a wait for the peer or another thread ended.
    package enum Wait {
        case alarm
        /// Bytes or the end of the connection can be read.
        case readable
        /// The time limit was reached.
        case nothing
    }

    /// Waits up to `limit` for readable bytes, the end of the connection or `alarm`.
    package func wait(or alarm: Alarm, within limit: Duration) -> Wait {
        alarm.wait(orReadable: number, within: limit)
    }

    /// Whether the peer has closed the connection.
    ///
    /// Also true if the peer has closed only its sending side. After `release`, that end does not count, because
    /// `interrupt` has the same effect.
    package var isHungUp: Bool { spoolgate_is_hung_up(number, isReleased ? 1 : 0) > 0 }

    /// Moves the open socket to a new `Connection`; this connection is then closed.
    ///
    /// Later calls of `release` or `cut` on this connection do nothing.
    ///
    /// - Returns: the new connection, or nil if this connection was already closed.
    package func handedOn() -> Connection? {
        guard let descriptor = state.updateQuietly({ $0.descriptor.take() }) else { return nil }
        return Connection(descriptor)
    }

    /// Sends a few bytes without waiting; returns true if all bytes were sent.
    package func sendAtOnce(_ bytes: [UInt8]) -> Bool {
        Glibc.send(number, bytes, bytes.count, Int32(MSG_DONTWAIT | MSG_NOSIGNAL)) == bytes.count
    }

    /// The result of one read.
    package enum Arrival: Equatable {
        /// This many bytes arrived, at least one.
        case bytes(Int)
        /// The peer has closed its sending side.
        case end
        /// No byte arrived within the receive timeout, or none was pending.
        case nothing
        case failed
    }

    /// Reads pending bytes into `first`, then into `second`.
    ///
    /// One of the buffers may be empty. If `waits` is true, waits up to the receive timeout for the first byte.
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

    /// Sends all bytes of `first`, then of `second`, waiting up to the send timeout for a slow peer.
    ///
    /// Returns false if the peer has disappeared or does not read.
    package func send(_ first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer) -> Bool {
        spoolgate_send(number, first.baseAddress, first.count, second.baseAddress, second.count)
            == 0
    }

    /// Sends a few bytes and passes a descriptor over a Unix socket, waiting up to the send timeout.
    ///
    /// Returns false like `send(_:_:)`.
    package func send(_ bytes: [UInt8], passing descriptor: borrowing Descriptor) -> Bool {
        spoolgate_send_descriptor(number, bytes, bytes.count, descriptor.number) == 0
    }

    /// Sends a few bytes like `send(_:_:)`.
    package func send(_ bytes: [UInt8]) -> Bool {
        bytes.withUnsafeBytes { send($0, UnsafeRawBufferPointer(start: nil, count: 0)) }
    }
}

/// Sets the timeout `option` of a socket, SO_RCVTIMEO or SO_SNDTIMEO.
func setTimeout(of socket: Int32, _ option: Int32, milliseconds: Int64) -> Int32 {
    let (seconds, rest) = milliseconds.quotientAndRemainder(dividingBy: 1_000)
    var time = timeval(tv_sec: Int(seconds), tv_usec: Int(rest) * 1_000)
    return setsockopt(socket, SOL_SOCKET, option, &time, socklen_t(MemoryLayout<timeval>.size))
}

extension Duration {
    /// The duration in milliseconds, at least 1, because 0 would mean no timeout.
    fileprivate var atLeastOneMillisecond: Int64 { max(1, wholeMilliseconds) }
}
