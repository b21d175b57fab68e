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
        if let transfer { lastWords = transfer.awaitsResponse ? Self.unread(socket) : [] }
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

// MARK: Callbacks

// The functions that libcurl calls, which forward to the transfer.
//
// Invariant: no Swift error leaves a callback. The transfer stores the error, and libcurl ends the transfer.

/// The result of a call for more content.
package enum ContentStep {
    /// The transfer wrote this many bytes. 0 means that the content has ended.
    case bytes(Int)
    /// The transfer has no bytes yet. libcurl calls again after `CurlConnection.resume`.
    case pause
    case stop
}

/// The callbacks of one transfer.
package protocol CurlTransfer: AnyObject {
    /// Called before a socket is opened; returns false to prevent the opening.
    func mayConnect() -> Bool
    /// Called before the first byte of the request; returns false to abort.
    func mayBeginRequest() -> Bool
    /// Called at least once a second with the numbers of content bytes so far; returns false to abort.
    func watchProgress(downloaded: Int64, uploaded: Int64) -> Bool
    /// Called for each line of a head or a trailer section; returns false to abort.
    func takeHeadLine(_ line: UnsafeRawBufferPointer) -> Bool
    /// Called for each nonempty piece of the final response's content; returns false to abort.
    func takeContent(_ content: UnsafeRawBufferPointer) -> Bool
    /// Called repeatedly to fill `buffer` with content of the request.
    func giveContent(_ buffer: UnsafeMutableRawBufferPointer) -> ContentStep
    /// Rewinds the content for a second try; returns false if that is impossible.
    func restartContent() -> Bool
    /// Whether the unread bytes of a closed connection may be the response. Must be false with TLS, which encrypts the
    /// bytes.
    var awaitsResponse: Bool { get }
}

extension CurlConnection {
    func setCallbacks() {
        let this = Unmanaged.passUnretained(context).toOpaque()
        _ = spoolgate_curl_set_open_socket(easy, this) { this, _, address in
            guard let found = found(this), let address, found.transfer?.mayConnect() ?? true else {
                return CURL_SOCKET_BAD
            }
            return found.openSocket(address)
        }
        _ = spoolgate_curl_set_close_socket(easy, this) { this, socket in
            found(this)?.closeSocket(socket) ?? close(socket)
        }
        _ = spoolgate_curl_set_prerequest(easy, this) { this, _, _, _, _ in
            found(this)?.transfer?.mayBeginRequest() ?? false
                ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT
        }
        _ = spoolgate_curl_set_progress(easy, this) { this, _, downloaded, _, uploaded in
            found(this)?.transfer?
                .watchProgress(downloaded: Int64(downloaded), uploaded: Int64(uploaded)) ?? true
                ? 0 : 1
        }
        _ = spoolgate_curl_set_head_function(easy, this) { bytes, size, count, this in
            let line = UnsafeRawBufferPointer(start: bytes, count: size * count)
            return found(this)?.transfer?.takeHeadLine(line) ?? false ? line.count : 0
        }
        _ = spoolgate_curl_set_write_function(easy, this) { bytes, size, count, this in
            let content = UnsafeRawBufferPointer(start: bytes, count: size * count)
            // An empty write has no meaning, and 0 also reports its success.
            guard !content.isEmpty else { return 0 }
            return found(this)?.transfer?.takeContent(content) ?? false ? content.count : 0
        }
        _ = spoolgate_curl_set_read_function(easy, this) { bytes, size, count, this in
            let buffer = UnsafeMutableRawBufferPointer(start: bytes, count: size * count)
            switch found(this)?.transfer?.giveContent(buffer) ?? .stop {
            case .bytes(let count): return count
            case .pause: return Int(CURL_READFUNC_PAUSE)
            case .stop: return Int(CURL_READFUNC_ABORT)
            }
        }
        _ = spoolgate_curl_set_seek(easy, this) { this, offset, _ in
            offset == 0 && found(this)?.transfer?.restartContent() ?? false
                ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_FAIL
        }
    }
}

private func found(_ context: UnsafeMutableRawPointer?) -> CurlContext? {
    context.map { Unmanaged<CurlContext>.fromOpaque($0).takeUnretainedValue() }
}
