// A stream socket, as client or server, on IPv4 loopback or a unix socket.
//
// It does not own its descriptor: its creator closes it.

import Glibc
import SpoolgatePosix

/// The address of a server on this machine.
package enum SocketAddress: Sendable {
    /// On 127.0.0.1; 0: the system chooses one for listening.
    case port(UInt16)
    case path(String)
}

/// One socket.
package struct StreamSocket: Sendable {
    package let number: Int32

    /// Wraps a descriptor from accept(2).
    package init(number: Int32) { self.number = number }

    /// Creates an unconnected socket.
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

    /// Connects from `source` within 127.0.0.0/8 (nil: any); `patience` is the timeout of each receive and send in
    /// seconds.
    package init(
        connectedTo address: SocketAddress,
        from source: String? = nil,
        patience: Int
    ) throws(SystemError) {
        try self.init(for: address)
        do throws(SystemError) {
            if let source {
                // connect chooses the port: a port from bind would be reserved and could run out.
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

    /// Creates a listening socket; removes an existing file at a unix socket's path.
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

    /// Connects an unconnected socket.
    package func connect(to address: SocketAddress) throws(SystemError) {
        let code = Self.withName(address) { Glibc.connect(number, $0, $1) }
        guard code == 0 else { throw SystemError("connect", on: "\(address)") }
    }

    /// Binds an unbound socket.
    package func bind(to address: SocketAddress) throws(SystemError) {
        let code = Self.withName(address) { Glibc.bind(number, $0, $1) }
        guard code == 0 else { throw SystemError("bind", on: "\(address)") }
    }

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

    /// Sets the timeout of each receive and send.
    package func setPatience(seconds: Int) {
        let patience = timeval(tv_sec: seconds, tv_usec: 0)
        set(SOL_SOCKET, SO_RCVTIMEO, patience)
        set(SOL_SOCKET, SO_SNDTIMEO, patience)
    }

    /// Sends small parts without delay; TCP only.
    package func sendAtOnce() { set(Int32(IPPROTO_TCP), TCP_NODELAY, Int32(1)) }

    /// Sets a socket option.
    package func set<Value: BitwiseCopyable>(_ level: Int32, _ option: Int32, _ value: Value) {
        var value = value
        setsockopt(number, level, option, &value, socklen_t(MemoryLayout<Value>.size))
    }

    /// Sends all of `bytes`; false with the reason in `errno`.
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

    /// Sends all of `bytes`; false after an error.
    @discardableResult
    package func send(_ bytes: [UInt8]) -> Bool { bytes.withUnsafeBytes { send($0) } }

    /// The result of one recv(2): empty at the end, nil after an error, with `errno`.
    package func receive(upTo limit: Int = 1 << 16) -> [UInt8]? {
        var count = 0
        let bytes = [UInt8](unsafeUninitializedCapacity: limit) { buffer, filled in
            count = recv(number, buffer.baseAddress, limit, 0)
            filled = max(0, count)
        }
        return count < 0 ? nil : bytes
    }

    /// Makes the next close a reset (RST).
    package func resetAtEnd() { set(SOL_SOCKET, SO_LINGER, linger(l_onoff: 1, l_linger: 0)) }

    /// Shuts down both directions, which wakes waiting threads.
    package func end() { shutdown(number, Int32(SHUT_RDWR)) }

    /// Closes the descriptor.
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
