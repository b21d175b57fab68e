// Stream sockets: connect, listen, write all. Raw descriptors, so that the client costs little.

import Glibc

/// Where a server listens.
enum Address: Sendable {
    /// A port of 127.0.0.1.
    case port(UInt16)
    /// A unix socket.
    case path(String)
}

/// Connects to `address`, with 120 s of patience for each later read and write.
///
/// - Returns: a descriptor that the caller closes.
func connectSocket(to address: Address) throws(BenchFailure) -> Int32 {
    let socket = try makeSocket(for: address)
    let code = withSocketAddress(address) { pointer, length in connect(socket, pointer, length) }
    guard code == 0 else {
        let failure = BenchFailure(call: "connect", on: "\(address)")
        close(socket)
        throw failure
    }
    var patience = timeval(tv_sec: 120, tv_usec: 0)
    let size = socklen_t(MemoryLayout<timeval>.size)
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, size)
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, size)
    if case .port = address {
        var on: Int32 = 1
        setsockopt(socket, Int32(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(4))
    }
    return socket
}

/// Listens on `address`; port 0 lets the system choose.
///
/// - Returns: a descriptor that the caller closes, and the port.
func listenSocket(on address: Address) throws(BenchFailure) -> (socket: Int32, port: UInt16) {
    let socket = try makeSocket(for: address)
    var on: Int32 = 1
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, socklen_t(4))
    let code = withSocketAddress(address) { pointer, length in bind(socket, pointer, length) }
    guard code == 0, listen(socket, 4096) == 0 else {
        let failure = BenchFailure(call: "listen", on: "\(address)")
        close(socket)
        throw failure
    }
    var name = sockaddr_in()
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    withUnsafeMutablePointer(to: &name) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { generic in
            _ = getsockname(socket, generic, &length)
        }
    }
    return (socket, UInt16(bigEndian: name.sin_port))
}

/// A port of 127.0.0.1 that nobody listens on at this moment.
func freePort() throws(BenchFailure) -> UInt16 {
    let (socket, port) = try listenSocket(on: .port(0))
    close(socket)
    return port
}

/// Writes all of `bytes`.
///
/// - Returns: whether the peer took them; false leaves the reason in `errno`.
func writeAll(_ socket: Int32, _ bytes: UnsafeRawBufferPointer) -> Bool {
    var rest = bytes
    while let start = rest.baseAddress, !rest.isEmpty {
        let count = write(socket, start, rest.count)
        if count > 0 {
            rest = UnsafeRawBufferPointer(rebasing: rest[count...])
        } else if errno != EINTR {
            return false
        }
    }
    return true
}

private func makeSocket(for address: Address) throws(BenchFailure) -> Int32 {
    let family: Int32
    switch address {
    case .port: family = AF_INET
    case .path: family = AF_UNIX
    }
    let type = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
    let descriptor = socket(family, type, 0)
    guard descriptor >= 0 else { throw BenchFailure(call: "socket") }
    return descriptor
}

private func withSocketAddress(
    _ address: Address,
    _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32
) -> Int32 {
    func generic<Name>(_ name: Name) -> Int32 {
        withUnsafePointer(to: name) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { generic in
                body(generic, socklen_t(MemoryLayout<Name>.size))
            }
        }
    }
    switch address {
    case .port(let port):
        var name = sockaddr_in()
        name.sin_family = sa_family_t(AF_INET)
        name.sin_port = port.bigEndian
        name.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
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
