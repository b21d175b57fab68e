// The sockets that libcurl has open for one handle, and the transfer its callbacks go to.
//
// What a socket says of itself is told here; what follows from it is the transfer's to decide.

import CSpoolgateCurl
import Glibc
import SpoolgatePosix

/// What libcurl's callbacks are given: the transfer under way and the sockets libcurl has open.
///
/// Used by the thread that uses its connection.
package final class CurlContext {
    /// The transfer under way.
    var transfer: (any CurlTransfer)?
    /// Whether a connection that is closed is reset instead.
    package var resets = false

    /// Longest time that the other side's system may leave what was sent unacknowledged; nil: the system's own, of
    /// many minutes.
    package var acknowledgementLimit: Duration?

    /// One socket, or for a moment several while libcurl tries addresses.
    private var sockets: [(number: curl_socket_t, isTCP: Bool)] = []
    private var isCorked = false
    /// Whether the last socket was not opened because this process or its system has no descriptor or memory left.
    package private(set) var lacksDescriptors = false
    /// What the other side had said, and nobody read, when libcurl closed the connection under way.
    package private(set) var lastWords: [UInt8] = []
    /// Most bytes of it.
    private static let lastWordsLimit = 64 * 1024

    /// Opens a socket for an address and remembers it.
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
                // Where the kernel refuses, its own limit holds.
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

    /// Closes a socket and forgets it.
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

    /// Forgets the last words of earlier connections.
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

    /// Holds back segments that are not full, so that a head waits for the content after it.
    package func cork() {
        guard let socket = sockets.last, socket.isTCP else { return }
        isCorked = Self.setCork(socket.number, 1)
    }

    /// Lets everything go that `cork` held back.
    package func uncork() {
        guard isCorked, let socket = sockets.last else { return }
        isCorked = !Self.setCork(socket.number, 0)
    }

    private static func setCork(_ socket: curl_socket_t, _ isOn: Int32) -> Bool {
        withUnsafeBytes(of: isOn) {
            setsockopt(socket, Int32(IPPROTO_TCP), TCP_CORK, $0.baseAddress, 4) == 0
        }
    }

    /// Bytes in the socket that the other side's system has not taken yet; -1 if it cannot be told.
    package var unsent: Int32 {
        var count: Int32 = 0
        guard let socket = sockets.last, ioctl(socket.number, UInt(TIOCOUTQ), &count) == 0 else {
            return -1
        }
        return count
    }

    /// Whether the other side has closed the connection, and everything that it said was read.
    package var isHungUp: Bool {
        guard let socket = sockets.last else { return false }
        var byte: UInt8 = 0
        let count = recv(socket.number, &byte, 1, Int32(MSG_PEEK) | Int32(MSG_DONTWAIT))
        return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)
    }

    /// Whether the other side has said something that was not read yet, its end included.
    package var isReadable: Bool { isReadable(within: 0) }

    /// Waits until the other side says something, no longer than so many milliseconds.
    ///
    /// - Returns: whether there is something to read, its end included.
    func isReadable(within milliseconds: Int32) -> Bool {
        // Of a number below zero there is never anything.
        var entry = pollfd(fd: sockets.last?.number ?? -1, events: Int16(POLLIN), revents: 0)
        return poll(&entry, 1, milliseconds) == 1
    }
}
