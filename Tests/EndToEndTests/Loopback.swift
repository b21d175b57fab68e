// What tests need to know of the machine's own sockets: free ports, and who listens.

import Foundation
import Synchronization

/// Ports that nobody listens on.
enum FreePort {
    struct None: Error {}

    /// Below those that the kernel gives to outgoing connections, which could take one between here and
    /// the server that it is for; and never the same twice in a run.
    private static let ports = 15_000..<32_000
    private static let next = Mutex(Int.random(in: ports))

    static func take(_ count: Int) throws -> [Int] {
        try (0..<count).map { _ in
            for _ in ports {
                let port = next.withLock { next in
                    next = next + 1 < ports.upperBound ? next + 1 : ports.lowerBound
                    return next
                }
                if isFree(port) { return port }
            }
            throw None()
        }
    }

    private static func isFree(_ port: Int) -> Bool {
        let socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(socket) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = UInt16(port).bigEndian
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(socket, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
            }
        }
    }
}

/// Whether somebody accepts on a unix socket.
enum UnixSocket {
    static func accepts(_ path: String) -> Bool {
        let socket = Glibc.socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(socket) }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(socket, $0, socklen_t(MemoryLayout<sockaddr_un>.size)) == 0
            }
        }
    }
}
