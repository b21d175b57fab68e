// A stream socket as tests use one, whichever side of it they are: connect, listen, send all, break.
//
// It does not own its number: whoever makes one closes it. IPv4 loopback and unix sockets only.

import Glibc
import SpoolgatePosix

/// Where a server on this machine listens.
package enum SocketAddress: Sendable {
    /// A port of 127.0.0.1; 0 lets the system choose where one listens.
    case port(UInt16)
    /// A unix socket.
    case path(String)
}

/// One socket.
package struct StreamSocket: Sendable {
    /// Its number.
    package let number: Int32

    /// Takes over a number that accept(2) gave.
    package init(number: Int32) { self.number = number }

    /// A socket that is not connected yet.
    ///
    /// - Throws: `SystemError` where the system has none to give.
    package init(for address: SocketAddress) throws(SystemError) {
        let family =
            switch address {
            case .port: AF_INET
            case .path: AF_UNIX
            }
        let type = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        number = socket(family, type, 0)
        guard number >= 0 else { throw SystemError("socket", on: "\(address)") }
    }

    /// A socket that is connected.
    ///
    /// - Parameters:
    ///   - address: the server's.
    ///   - source: the client's own address, within 127.0.0.0/8; nil: the system chooses.
    ///   - patience: seconds for each later receiving and sending.
    /// - Throws: `SystemError` where nobody listens.
    package init(
        connectedTo address: SocketAddress,
        from source: String? = nil,
        patience: Int
    ) throws(SystemError) {
        try self.init(for: address)
        do throws(SystemError) {
            if let source {
                // Its port is chosen by connect: chosen by bind, it could be no other connection's.
                set(Int32(IPPROTO_IP), IP_BIND_ADDRESS_NO_PORT, Int32(1))
                let code = Self.withName(.port(0), host: source) { Glibc.bind(number, $0, $1) }
                guard code == 0 else { throw SystemError("bind", on: source) }
            }
            try connect(to: address)
        } catch {
            close()
            throw error
        }
        setPatience(seconds: patience)
        if case .port = address { sendAtOnce() }
    }

    /// A socket that listens; what was at the path of a unix socket is removed.
    ///
    /// - Throws: `SystemError` when the address cannot be had.
    package init(listeningOn address: SocketAddress) throws(SystemError) {
        try self.init(for: address)
        switch address {
        case .path(let path): unlink(path)
        case .port: set(SOL_SOCKET, SO_REUSEADDR, Int32(1))
        }
        let code = Self.withName(address) { Glibc.bind(number, $0, $1) }
        guard code == 0, listen(number, 4096) == 0 else {
            let error = SystemError("bind", on: "\(address)")
            close()
            throw error
        }
    }

    /// Connects a socket that is not connected.
    ///
    /// - Throws: `SystemError` where nobody listens.
    package func connect(to address: SocketAddress) throws(SystemError) {
        let code = Self.withName(address) { Glibc.connect(number, $0, $1) }
        guard code == 0 else { throw SystemError("connect", on: "\(address)") }
    }

    /// Binds a socket that is not bound.
    ///
    /// - Throws: `SystemError` when the address cannot be had.
    package func bind(to address: SocketAddress) throws(SystemError) {
        let code = Self.withName(address) { Glibc.bind(number, $0, $1) }
        guard code == 0 else { throw SystemError("bind", on: "\(address)") }
    }

    /// The port of a socket that listens on one.
    package var port: UInt16 {
        var name = sockaddr_in()
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        _ = withUnsafeMutablePointer(to: &name) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                getsockname(number, $0, &length)
            }
        }
        return UInt16(bigEndian: name.sin_port)
    }

    /// Limits each receiving and sending in which nothing moves.
    package func setPatience(seconds: Int) {
        let patience = timeval(tv_sec: seconds, tv_usec: 0)
        set(SOL_SOCKET, SO_RCVTIMEO, patience)
        set(SOL_SOCKET, SO_SNDTIMEO, patience)
    }

    /// Sends small parts at once; TCP only.
    package func sendAtOnce() { set(Int32(IPPROTO_TCP), TCP_NODELAY, Int32(1)) }

    /// Sets one of the socket's options.
    package func set<Value: BitwiseCopyable>(_ level: Int32, _ option: Int32, _ value: Value) {
        var value = value
        setsockopt(number, level, option, &value, socklen_t(MemoryLayout<Value>.size))
    }

    /// Sends all of some bytes.
    ///
    /// - Returns: whether the peer took them; false leaves the reason in `errno`.
    @discardableResult
    package func send(_ bytes: UnsafeRawBufferPointer) -> Bool {
        var rest = bytes
        while !rest.isEmpty {
            let count = Glibc.send(number, rest.baseAddress, rest.count, Int32(MSG_NOSIGNAL))
            if count > 0 {
                rest = UnsafeRawBufferPointer(rebasing: rest[count...])
            } else if errno != EINTR {
                return false
            }
        }
        return true
    }

    /// Sends all of some bytes; whether the peer took them.
    @discardableResult
    package func send(_ bytes: [UInt8]) -> Bool { bytes.withUnsafeBytes { send($0) } }

    /// What one recv(2) gives; empty at the end, and nil after an error, which is in `errno`.
    package func receive(atMost limit: Int = 1 << 16) -> [UInt8]? {
        var count = 0
        let bytes = [UInt8](unsafeUninitializedCapacity: limit) { buffer, filled in
            count = recv(number, buffer.baseAddress, limit, 0)
            filled = max(0, count)
        }
        return count < 0 ? nil : bytes
    }

    /// Makes the end of the connection a reset (RST).
    package func resetAtEnd() { set(SOL_SOCKET, SO_LINGER, linger(l_onoff: 1, l_linger: 0)) }

    /// Ends both directions; what waits for the socket wakes up.
    package func end() { shutdown(number, Int32(SHUT_RDWR)) }

    /// Gives the number back.
    package func close() { Glibc.close(number) }

    private static func withName(
        _ address: SocketAddress,
        host: String = "127.0.0.1",
        _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32
    ) -> Int32 {
        func generic<Name>(_ name: Name) -> Int32 {
            withUnsafePointer(to: name) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    body($0, socklen_t(MemoryLayout<Name>.size))
                }
            }
        }
        switch address {
        case .port(let port):
            var name = sockaddr_in()
            name.sin_family = sa_family_t(AF_INET)
            name.sin_port = port.bigEndian
            name.sin_addr.s_addr = inet_addr(host)
            return generic(name)
        case .path(let path):
            var name = sockaddr_un()
            name.sun_family = sa_family_t(AF_UNIX)
            let fits = withUnsafeMutableBytes(of: &name.sun_path) { field in
                guard path.utf8.count < field.count else { return false }
                field.copyBytes(from: path.utf8)
                return true
            }
            guard fits else {
                errno = ENAMETOOLONG
                return -1
            }
            return generic(name)
        }
    }
}
