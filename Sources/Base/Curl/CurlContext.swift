// The context of one handle's callbacks.

import CSpoolgateCurl
import Glibc
import SpoolgatePosix

/// The context of libcurl's callbacks: the current transfer and the open sockets.
///
/// Only the thread that uses the handle may use its context.
package final class CurlContext {
    var transfer: (any CurlTransfer)?
    /// Whether connections are closed with a TCP reset.
    package var resets = false

    /// How long sent data may stay unacknowledged, or nil for the system's limit of many minutes.
    package var acknowledgementLimit: Duration?

    /// The open sockets: one, or several while libcurl tries addresses.
    private var sockets: [(number: curl_socket_t, isTCP: Bool)] = []
    private var isCorked = false
    /// Whether the last attempt to open a socket failed for lack of descriptors or memory.
    package private(set) var lacksDescriptors = false
    /// The bytes still unread when libcurl closed the connection.
    package private(set) var lastWords: [UInt8] = []
    private static let lastWordsLimit = 64 * 1024

    func openSocket(_ address: UnsafePointer<curl_sockaddr>) -> curl_socket_t {
        let address = address.pointee
        let kind = address.socktype | Int32(SOCK_CLOEXEC.rawValue)
        let number = socket(address.family, kind, address.protocol)
        let isTCP = [AF_INET, AF_INET6].contains(address.family)
        lacksDescriptors =
            number == CURL_SOCKET_BAD && [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(errno)
        if number != CURL_SOCKET_BAD { sockets.append((number, isTCP)) }
        if isTCP, let limit = acknowledgementLimit {
            withUnsafeBytes(of: UInt32(clamping: limit.wholeMilliseconds)) {
                // If the kernel refuses the limit, the system's limit applies.
                _ = setsockopt(
                    number,
                    Int32(IPPROTO_TCP),
                    TCP_USER_TIMEOUT,
                    $0.baseAddress,
                    socklen_t($0.count)
                )
            }
        }
        return number
    }

    func closeSocket(_ socket: curl_socket_t) -> Int32 {
        sockets.removeAll { $0.number == socket }
        if resets {
            var linger = linger(l_onoff: 1, l_linger: 0)
            let size = socklen_t(MemoryLayout<Glibc.linger>.size)
            _ = setsockopt(socket, SOL_SOCKET, SO_LINGER, &linger, size)
        }
        if let transfer { lastWords = transfer.awaitsAnswer ? Self.unread(socket) : [] }
        return close(socket)
    }

    /// Discards the unread bytes of earlier connections.
    package func forgetLastWords() { lastWords = [] }

    private static func unread(_ socket: curl_socket_t) -> [UInt8] {
        .init(unsafeUninitializedCapacity: lastWordsLimit) { buffer, count in
            while count < buffer.count {
                let part = UnsafeMutableBufferPointer(rebasing: buffer[count...])
                let read = recv(socket, part.baseAddress, part.count, Int32(MSG_DONTWAIT))
                guard read > 0 else { return }
                count += read
            }
        }
    }

    /// Delays partial TCP segments, so that a head is sent with the content that follows.
    package func cork() {
        guard let socket = sockets.last, socket.isTCP else { return }
        isCorked = Self.setCork(socket.number, 1)
    }

    /// Sends the bytes that `cork` delayed.
    package func uncork() {
        guard isCorked, let socket = sockets.last else { return }
        isCorked = !Self.setCork(socket.number, 0)
    }

    private static func setCork(_ socket: curl_socket_t, _ isOn: Int32) -> Bool {
        withUnsafeBytes(of: isOn) {
            setsockopt(socket, Int32(IPPROTO_TCP), TCP_CORK, $0.baseAddress, 4) == 0
        }
    }

    /// The number of sent bytes that the peer's system has not yet acknowledged, or -1 if unknown.
    package var unsent: Int32 {
        var count: Int32 = 0
        guard let socket = sockets.last, ioctl(socket.number, UInt(TIOCOUTQ), &count) == 0 else {
            return -1
        }
        return count
    }

    /// Whether the peer has closed the connection and all bytes from the peer have been read.
    package var isHungUp: Bool {
        guard let socket = sockets.last else { return false }
        var byte: UInt8 = 0
        let count = recv(socket.number, &byte, 1, Int32(MSG_PEEK) | Int32(MSG_DONTWAIT))
        return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)
    }

    /// Whether unread bytes or the end of the connection have arrived.
    package var isReadable: Bool { isReadable(within: 0) }

    /// Waits for bytes from the peer, but no longer than `milliseconds`.
    ///
    /// - Returns: whether unread bytes or the end of the connection have arrived.
    func isReadable(within milliseconds: Int32) -> Bool {
        // poll(2) ignores a negative descriptor.
        var entry = pollfd(fd: sockets.last?.number ?? -1, events: Int16(POLLIN), revents: 0)
        return poll(&entry, 1, milliseconds) == 1
    }
}
