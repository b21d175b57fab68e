// Listening sockets.
//
// Invariant: a listener removes only a socket file that it created, and only if the name still refers to that file.

import CSpoolgateLinux
import Glibc

/// The address on which connections are accepted.
package enum ListenAddress: Sendable, Equatable {
    /// A Unix socket; `mode` has the file's permission bits. A `group` name of nil leaves the group unchanged.
    case unix(path: String, mode: UInt32, group: String?)
    /// A TCP address, `host:port`. IPv6 addresses are in brackets. An empty host means all addresses.
    case tcp(String)
    /// The only socket passed by the service manager (sd_listen_fds(3)).
    case inherited
}

/// A listening socket.
///
/// The socket is closed when the value is destroyed. Call `remove` before.
package struct Listener: ~Copyable, Sendable {
    let descriptor: Descriptor
    private let subject: String
    /// Whether the service manager passed the socket, so that it stays open after this process ends.
    package let isInherited: Bool
    private let path: String?
    private let identity: FileIdentity?

    private init(
        _ descriptor: consuming Descriptor,
        subject: String,
        isInherited: Bool = false,
        path: String? = nil
    ) {
        self.descriptor = descriptor
        self.subject = subject
        self.isInherited = isInherited
        self.path = path
        identity = path.flatMap { FileIdentity(of: $0, followingLinks: false) }
        // The peer may have left before its connection is accepted.
        var isNonblocking: Int32 = 1
        _ = ioctl(self.descriptor.number, UInt(FIONBIO), &isNonblocking)
    }

    /// Opens a listener.
    ///
    /// A socket file without a listening process is replaced. Permissions and group are set before the first connection
    /// is possible. The returned listener already queues at most `backlog` connections, or fewer if the system limits
    /// the number. `environment` returns the value of a variable, for `LISTEN_PID` and `LISTEN_FDS`.
    ///
    /// - Throws: `SystemError`; EADDRINUSE if a process is already listening on the address.
    package static func open(
        _ address: ListenAddress,
        backlog: Int32 = 4096,
        environment: (String) -> String? = Listener.processEnvironment
    ) throws(SystemError) -> Listener {
        switch address {
        case .unix(let path, let mode, let group):
            try unix(path: path, mode: mode, group: group, backlog: backlog)
        case .tcp(let address):
            try tcp(address, backlog: backlog)
        case .inherited:
            try inherited(environment)
        }
    }

    /// Returns the value of an environment variable of this process, or nil if it is not set.
    package static func processEnvironment(_ name: String) -> String? {
        getenv(name).map { String(cString: $0) }
    }

    /// Accepts a connection; returns nil if none is waiting, the peer has left, or `stop` was called.
    ///
    /// - Throws: `SystemError` if descriptors or memory are exhausted, or if the descriptor is not a socket.
    package func accept() throws(SystemError) -> Connection? {
        let number = spoolgate_accept(descriptor.number)
        if number >= 0 { return Connection(Descriptor(owning: number)) }
        switch errno {
        case EMFILE, ENFILE, ENOMEM, ENOBUFS, EBADF, ENOTSOCK, EOPNOTSUPP, EFAULT, EPERM:
            throw SystemError("accept4", on: subject)
        default:
            // EINVAL after `stop`; EAGAIN, EINTR; and errors of a lost connection that accept(2) passes on.
            return nil
        }
    }

    /// Makes future TCP connections send small writes at once.
    ///
    /// On Linux, connections inherit the listener's setting, which saves a call for each connection.
    package func setNoDelay() {
        var on: Int32 = 1
        let size = socklen_t(MemoryLayout<Int32>.size)
        _ = setsockopt(descriptor.number, Int32(IPPROTO_TCP), TCP_NODELAY, &on, size)
    }

    /// Refuses further connections.
    ///
    /// Connections that are already waiting can still be accepted.
    ///
    /// An inherited socket stays open for the next process.
    package func stop() {
        if !isInherited { _ = shutdown(descriptor.number, Int32(SHUT_RDWR)) }
    }

    /// Removes the socket file if this listener created the file and the file has not been replaced.
    package func remove() {
        guard let path, let identity, FileIdentity(of: path, followingLinks: false) == identity
        else { return }
        _ = unlink(path)
    }
}

// MARK: Unix sockets

extension Listener {
    private static func unix(
        path: String,
        mode: UInt32,
        group: String?,
        backlog: Int32
    ) throws(SystemError) -> Listener {
        let number = try SystemError.check(spoolgate_unix_socket(), "socket", on: path)
        let descriptor = Descriptor(owning: number)
        if spoolgate_unix_bind(number, path, path.utf8.count) != 0 {
            guard errno == EADDRINUSE else { throw SystemError("bind", on: path) }
            try removeStale(path)
            let status = spoolgate_unix_bind(number, path, path.utf8.count)
            try SystemError.check(status, "bind", on: path)
        }
        // Set before listen, so that mode and group apply to the first connection.
        let listener = Listener(descriptor, subject: path, path: path)
        do throws(SystemError) {
            if let group { try give(path, to: group) }
            try SystemError.check(chmod(path, mode_t(mode)), "chmod", on: path)
            try SystemError.check(listen(number, backlog), "listen", on: path)
        } catch {
            listener.remove()
            throw error
        }
        return listener
    }

    private static func removeStale(_ path: String) throws(SystemError) {
        var status = stat()
        try SystemError.check(lstat(path, &status), "lstat", on: path)
        guard status.st_mode & S_IFMT == S_IFSOCK else {
            throw SystemError(
                call: "bind",
                subject: "\(path), which is not a socket",
                errno: EEXIST
            )
        }
        guard try !LocalSocket.isListening(path) else {
            throw SystemError(
                call: "bind",
                subject: "\(path), on which another process listens",
                errno: EADDRINUSE
            )
        }
        try SystemError.check(unlink(path), "unlink", on: path)
    }

    private static func give(_ path: String, to group: String) throws(SystemError) {
        guard let number = SystemUser.group(named: group) else {
            throw SystemError(call: "getgrnam", subject: "group \(group)", errno: ENOENT)
        }
        let status = lchown(path, uid_t.max, number)
        try SystemError.check(status, "chown", on: "\(path) to group \(group)")
    }
}

// MARK: TCP and inherited sockets

extension Listener {
    private static func tcp(_ address: String, backlog: Int32) throws(SystemError) -> Listener {
        guard let colon = address.lastIndex(of: ":") else {
            throw SystemError(call: "bind", subject: "\(address) (no port)", errno: EINVAL)
        }
        var host = address[..<colon]
        if host.first == "[", host.last == "]" { host = host.dropFirst().dropLast() }
        let port = String(address[address.index(after: colon)...])
        var resolution: Int32 = 0
        let number =
            host.isEmpty
            ? spoolgate_tcp_bind(nil, port, &resolution)
            : spoolgate_tcp_bind(String(host), port, &resolution)
        guard number >= 0 else {
            throw resolution == 0
                ? SystemError("bind", on: address)
                : SystemError(call: "getaddrinfo", subject: address, errno: EADDRNOTAVAIL)
        }
        let descriptor = Descriptor(owning: number)
        try SystemError.check(listen(number, backlog), "listen", on: address)
        return Listener(descriptor, subject: address)
    }

    private static func inherited(
        _ environment: (String) -> String?
    ) throws(SystemError) -> Listener {
        let first: Int32 = 3  // SD_LISTEN_FDS_START
        let subject = "the service manager's socket"
        guard environment("LISTEN_PID") == String(getpid()), environment("LISTEN_FDS") == "1" else {
            throw SystemError(
                call: "sd_listen_fds",
                subject: "\(subject) (exactly one is required)",
                errno: ENOENT
            )
        }
        guard spoolgate_is_listening(first) == 1 else {
            throw SystemError(call: "getsockopt", subject: subject, errno: ENOTSOCK)
        }
        try SystemError.check(fcntl(first, F_SETFD, FD_CLOEXEC), "fcntl", on: subject)
        return Listener(Descriptor(owning: first), subject: subject, isInherited: true)
    }
}
