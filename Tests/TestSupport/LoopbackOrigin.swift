// An HTTP/1.1 origin server that misbehaves on order: every connection runs a script, line by line
// what a test wants the upstream to do.
//
// It does not: speak TLS, check what it is sent beyond framing, send anything the script did not say,
// handle trailers, pipelining or Expect, limit sizes, or survive a hostile peer. A script that throws
// ends its connection and nothing else. The invariant: each connection has its own thread, and
// `stop()` (or deinit) ends all of them, so no test waits for a socket for ever.

import Foundation
import Posix
import Synchronization

/// A server on a loopback port or a unix socket.
package final class LoopbackOrigin: Sendable {
    /// One request, as it came.
    package struct Request: Sendable {
        /// The request line.
        package var line: String
        /// The field lines, in order, as sent; bytes above 0x7f as ISO 8859-1.
        package var fieldLines: [String]
        /// The content, unchunked; only its first `keptContent` bytes where the script said so.
        package var content: [UInt8] = []
        /// Bytes of content in all.
        package var contentLength = 0

        /// The values of every field with this name, in order.
        package func values(_ name: String) -> [String] {
            fieldLines.compactMap { line in
                let parts = line.split(
                    separator: ":",
                    maxSplits: 1,
                    omittingEmptySubsequences: false
                )
                guard parts.count == 2, parts[0].lowercased() == name.lowercased() else {
                    return nil
                }
                return parts[1].trimmingCharacters(in: .whitespaces)
            }
        }
    }

    /// A connection ended where the script needed more of it.
    package struct Ended: Error {
        package init() {}
    }

    /// What a script does on each connection.
    package typealias Script = @Sendable (OriginConnection) throws -> Void

    /// The port; 0 for a unix socket.
    package let port: UInt16
    /// The base for an upstream on TCP.
    package var base: String { "http://127.0.0.1:\(port)" }
    /// Connections accepted so far.
    package var connectionCount: Int { state.update { $0.accepted } }
    /// Connections open now.
    package var openCount: Int { state.update { $0.open.count } }
    /// The requests read whole so far.
    package var requests: [Request] { state.update { $0.requests } }

    private struct State {
        var accepted = 0
        var requests: [Request] = []
        var open: [Int32] = []
        var isStopped = false
    }

    private let listener: Int32
    private let state = Monitor(State())

    /// Listens and serves.
    ///
    /// - Parameters:
    ///   - socketPath: a unix socket to make; nil: a free port of 127.0.0.1.
    ///   - receiveBuffer: SO_RCVBUF of every connection; nil: the system's.
    ///   - script: run on each connection; the connection is closed when it returns.
    /// - Throws: `SystemError` when the address cannot be had.
    package init(
        socketPath: String? = nil,
        receiveBuffer: Int32? = nil,
        _ script: @escaping Script
    ) throws {
        let listener = try Self.listen(socketPath)
        if var size = receiveBuffer {
            setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &size, socklen_t(MemoryLayout<Int32>.size))
        }
        self.listener = listener
        port = socketPath == nil ? Self.port(of: listener) : 0
        let shared = Shared(self)
        try Posix.Thread.start(name: "origin") {
            while true {
                let number = accept(listener, nil, nil)
                guard number >= 0 else { break }
                guard shared.value?.add(number) == true else {
                    close(number)
                    break
                }
                // Threads hold the origin weakly: a test that lets go of it stops it.
                let connection = OriginConnection(number) { shared.value?.note($0) }
                let served: Void? = try? Posix.Thread.start(name: "origin-conn") {
                    // A script that throws has said all it wanted to say by its connection's end.
                    try? script(connection)
                    shared.close(number)
                }
                if served == nil { shared.close(number) }
            }
            close(listener)
        }
    }

    /// Answers every request on every connection with one response, keeping connections open.
    package convenience init(
        socketPath: String? = nil,
        status: String = "200 OK",
        fields: [String] = [],
        content: String = "done"
    ) throws {
        try self.init(socketPath: socketPath) { connection in
            while let request = try connection.receiveRequest() {
                try connection.answer(
                    status,
                    fields: fields,
                    content: content,
                    hasContent: !request.line.hasPrefix("HEAD ")
                )
            }
        }
    }

    deinit { stop() }

    /// Ends every connection and listens no more.
    package func stop() {
        // Inside the lock, so that no number can be closed and given away meanwhile.
        let isFirst = state.update { state in
            defer { state.isStopped = true }
            for number in state.open { shutdown(number, Int32(SHUT_RDWR)) }
            return !state.isStopped
        }
        if isFirst { shutdown(listener, Int32(SHUT_RDWR)) }
    }

    private final class Shared: Sendable {
        private let origin: Mutex<Weak>
        private struct Weak { weak var value: LoopbackOrigin? }
        init(_ origin: LoopbackOrigin) { self.origin = Mutex(Weak(value: origin)) }
        var value: LoopbackOrigin? { origin.withLock { $0.value } }

        func close(_ number: Int32) {
            value?.forget(number)
            Glibc.close(number)
        }
    }

    private func add(_ number: Int32) -> Bool {
        state.update {
            guard !$0.isStopped else { return false }
            $0.accepted += 1
            $0.open.append(number)
            return true
        }
    }

    private func forget(_ number: Int32) {
        state.update { $0.open.removeAll { $0 == number } }
    }

    private func note(_ request: Request) { state.update { $0.requests.append(request) } }

    private static func listen(_ path: String?) throws -> Int32 {
        let family = path == nil ? AF_INET : AF_UNIX
        let number = socket(family, Int32(SOCK_STREAM.rawValue), 0)
        var result: Int32
        if let path {
            unlink(path)
            var address = sockaddr_un()
            address.sun_family = sa_family_t(AF_UNIX)
            withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
            result = withUnsafePointer(to: &address) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    bind(number, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
                }
            }
        } else {
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
            result = withUnsafePointer(to: &address) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    bind(number, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
                }
            }
        }
        if result == 0 { result = Glibc.listen(number, 64) }
        guard result == 0 else {
            throw SystemError(call: "bind", subject: path ?? "127.0.0.1", errno: errno)
        }
        return number
    }

    private static func port(of number: Int32) -> UInt16 {
        var address = sockaddr_in()
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        _ = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                getsockname(number, $0, &size)
            }
        }
        return UInt16(bigEndian: address.sin_port)
    }
}
