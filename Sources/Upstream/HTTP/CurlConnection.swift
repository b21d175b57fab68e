// One libcurl easy handle with the one connection it keeps, and the pool of idle ones.
//
// A handle is used by one attempt at a time and given back with its connection still open. It keeps the
// options that hold for every attempt on its upstream (CurlOptions.swift), and nothing that points to a
// request. The invariant: a context knows the descriptor of the kept connection while libcurl has it open.

import CCurl
import Glibc
import Posix

/// An easy handle, its error text and its connection's socket.
///
/// One thread at a time, which the pool sees to; hence unchecked.
final class CurlConnection: @unchecked Sendable {
    /// The handle.
    let easy: UnsafeMutableRawPointer
    /// Where libcurl writes why it failed.
    let errorText: UnsafeMutablePointer<CChar>
    /// Its sockets and the attempt under way: what libcurl's callbacks are given.
    let context = CurlContext()
    /// What libcurl connects to, taken apart.
    private(set) var url: OpaquePointer?
    /// The field lines of the attempt under way.
    var lines = FieldLines()
    /// Whether the options that hold for every attempt are set, and may stay.
    var isPrepared = false
    /// When it was given back last.
    fileprivate(set) var idleUntil = Deadline.after(.zero)

    /// Makes a handle; nil when there is no memory for it.
    init?() {
        guard Self.libraryIsReady, let easy = curl_easy_init() else { return nil }
        self.easy = easy
        errorText = .allocate(capacity: Int(CURL_ERROR_SIZE))
        errorText.initialize(repeating: 0, count: Int(CURL_ERROR_SIZE))
    }

    deinit {
        curl_easy_cleanup(easy)
        curl_url_cleanup(url)
        errorText.deallocate()
    }

    private static let libraryIsReady = spoolgate_curl_global_init() == CURLE_OK

    /// Takes a URL apart and keeps it; false for what is none.
    func keep(url text: String) -> Bool {
        if url == nil { url = curl_url() }
        return curl_url_set(url, CURLUPART_URL, text, 0) == CURLUE_OK
    }

    /// Why the last transfer failed, in libcurl's or OpenSSL's words.
    func explanation(of code: CURLcode) -> String {
        let text = String(cString: errorText)
        guard text.isEmpty else { return text }
        guard let known = curl_easy_strerror(code) else { return "curl error \(code.rawValue)" }
        return String(cString: known)
    }

    /// Bytes of the request's first part that the connection has taken in this attempt.
    var requestSize: Int {
        var size = 0
        let code = spoolgate_curl_get_long(easy, CURLINFO_REQUEST_SIZE, &size)
        return code == CURLE_OK ? size : 0
    }

    /// Marks it as idle from now on.
    fileprivate func rest() {
        if isPrepared {
            _ = spoolgate_curl_set_pointer(easy, CURLOPT_POSTFIELDS, nil)
            _ = spoolgate_curl_set_pointer(easy, CURLOPT_HTTPHEADER, nil)
        } else {
            curl_easy_reset(easy)
        }
        errorText[0] = 0
        context.attempt = nil
        idleUntil = .after(ConnectionPool.idleTime)
    }
}

/// What libcurl's callbacks are given: the attempt under way and the sockets libcurl has open.
final class CurlContext {
    /// The attempt under way.
    var attempt: HTTPAttempt?

    /// One socket, or for a moment several while libcurl tries addresses.
    private var sockets: [(number: curl_socket_t, isTCP: Bool)] = []
    private var isCorked = false
    /// What the upstream had said, and nobody read, when libcurl closed the connection under way.
    private(set) var lastWords: [UInt8] = []
    /// Most bytes of it.
    private static let lastWordsLimit = 64 * 1024

    /// Opens a socket for an address and remembers it.
    func openSocket(_ address: UnsafePointer<curl_sockaddr>) -> curl_socket_t {
        let address = address.pointee
        let kind = address.socktype | Int32(SOCK_CLOEXEC.rawValue)
        let number = socket(address.family, kind, address.protocol)
        let isTCP = [AF_INET, AF_INET6].contains(address.family)
        if number != CURL_SOCKET_BAD { sockets.append((number, isTCP)) }
        return number
    }

    /// Closes a socket and forgets it.
    func closeSocket(_ socket: curl_socket_t) -> Int32 {
        sockets.removeAll { $0.number == socket }
        if let attempt { lastWords = attempt.awaitsAnswer ? Self.unread(socket) : [] }
        return close(socket)
    }

    /// Forgets the last words of earlier connections.
    func forgetLastWords() { lastWords = [] }

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
    func cork() {
        guard let socket = sockets.last, socket.isTCP else { return }
        isCorked = Self.setCork(socket.number, 1)
    }

    /// Lets everything go that `cork` held back.
    func uncork() {
        guard isCorked, let socket = sockets.last else { return }
        isCorked = !Self.setCork(socket.number, 0)
    }

    private static func setCork(_ socket: curl_socket_t, _ isOn: Int32) -> Bool {
        withUnsafeBytes(of: isOn) {
            setsockopt(socket, Int32(IPPROTO_TCP), TCP_CORK, $0.baseAddress, 4) == 0
        }
    }

    /// Bytes in the socket that the upstream's system has not taken yet; -1 if it cannot be told.
    var unsent: Int32 {
        var count: Int32 = 0
        guard let socket = sockets.last, ioctl(socket.number, UInt(TIOCOUTQ), &count) == 0 else {
            return -1
        }
        return count
    }

    /// Whether the other side has closed the connection, and everything that it said was read.
    var isHungUp: Bool {
        guard let socket = sockets.last else { return false }
        var byte: UInt8 = 0
        let count = recv(socket.number, &byte, 1, Int32(MSG_PEEK) | Int32(MSG_DONTWAIT))
        return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)
    }

    /// Whether the upstream has said something that was not read yet, its end included.
    var isReadable: Bool {
        guard let socket = sockets.last else { return false }
        var entry = pollfd(fd: socket.number, events: Int16(POLLIN), revents: 0)
        return poll(&entry, 1, 0) == 1
    }
}

/// The idle handles of one upstream, the one used last on top.
final class ConnectionPool: Sendable {
    /// Most handles kept; what comes back beyond that is closed.
    static let capacity = 32
    /// How long a handle is kept unused, its connection open.
    static let idleTime = Duration.seconds(60)

    /// A Monitor, though nobody waits on it: Swift's Mutex hands itself over in order, which under load
    /// makes a queue of sleeping threads behind every preempted holder.
    private let idle = Monitor<[CurlConnection]>([])

    /// An idle handle, or a new one; nil when there is no memory for it.
    func take() -> CurlConnection? {
        idle.update { $0.popLast() } ?? CurlConnection()
    }

    /// Takes a handle back and closes those that have been idle for too long.
    func giveBack(_ connection: CurlConnection) {
        connection.rest()
        // Closing can take a TLS goodbye, so it happens after the lock is let go.
        let surplus = idle.update { idle -> [CurlConnection] in
            let expired = idle.prefix { $0.idleUntil.hasPassed }
            idle.removeFirst(expired.count)
            guard idle.count < Self.capacity else { return expired + [connection] }
            idle.append(connection)
            return Array(expired)
        }
        withExtendedLifetime(surplus) {}
    }
}
