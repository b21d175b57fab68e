// An HTTP/1.1 origin that runs a script on every connection, to misbehave as a test requires.
//
// It has no TLS, trailers, pipelining, Expect or size limits, validates only framing, and sends nothing beyond the
// script. A script that throws ends only its own connection. Invariant: each connection has its own thread, and
// `stop()` (or deinit) ends all, so that no test waits forever for a socket.

import Foundation
import SpoolgatePosix
import Synchronization

/// A server on a loopback port or a unix socket.
package final class LoopbackOrigin: Sendable {
    /// One request, as far as received.
    package struct Request: Sendable {
        /// Its number among the origin's requests, from 0.
        package var number = 0
        package var line: String
        /// As received; bytes above 0x7f as ISO 8859-1.
        package var fieldLines: [String]
        /// The decoded content, or its first `keptContent` bytes.
        package var content: [UInt8] = []
        /// The content bytes received.
        package var contentLength = 0
        package var isWhole = false
        /// Whether the whole response was sent; the client may not have read it.
        package var isAnswered = false

        package var method: String { word(0) }
        package var target: String { word(1) }

        private func word(_ index: Int) -> String {
            let words = line.components(separatedBy: " ")
            return index < words.count ? words[index] : ""
        }

        /// The values of every field with this name.
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

    /// A connection ended before the script expected.
    package struct Ended: Error {
        package init() {}
    }

    /// The script of each connection.
    package typealias Script = @Sendable (OriginConnection) throws -> Void

    /// 0 for a unix socket.
    package let port: UInt16
    package var base: String { "http://127.0.0.1:\(port)" }
    package var connectionCount: Int { state.update { $0.accepted } }
    package var openCount: Int { state.update { $0.open.count } }
    /// The complete requests.
    package var requests: [Request] { book.all.filter(\.isWhole) }
    package var all: [Request] { book.all }

    private struct State {
        var accepted = 0
        var open: [StreamSocket] = []
        var isStopped = false
    }

    private let listener: StreamSocket
    private let state = Monitor(State())
    private let book: Book

    /// Listens and serves.
    ///
    /// - Parameters:
    ///   - socketPath: of a unix socket; nil: a free port of 127.0.0.1.
    ///   - receiveBuffer: SO_RCVBUF of every connection; nil: the default.
    ///   - remembers: whether it keeps received requests.
    ///   - script: runs on each connection, which then closes.
    /// - Throws: `SystemError` if the address cannot be bound.
    package init(
        socketPath: String? = nil,
        receiveBuffer: Int32? = nil,
        remembers: Bool = true,
        _ script: @escaping Script
    ) throws {
        let listener = try StreamSocket(listeningOn: socketPath.map { .path($0) } ?? .port(0))
        if let receiveBuffer { listener.set(SOL_SOCKET, SO_RCVBUF, receiveBuffer) }
        self.listener = listener
        port = socketPath == nil ? listener.port : 0
        let book = Book(remembers: remembers)
        self.book = book
        let shared = Shared(self)
        try SpoolgatePosix.Thread.start(name: "origin") {
            while true {
                let number = accept(listener.number, nil, nil)
                guard number >= 0 else { break }
                let socket = StreamSocket(number: number)
                guard shared.value?.add(socket) == true else {
                    socket.close()
                    break
                }
                if socketPath == nil { socket.sendAtOnce() }
                // Threads hold the origin weakly, so that its release stops it.
                let connection = OriginConnection(socket, book)
                let served: Void? = try? SpoolgatePosix.Thread.start(name: "origin-conn") {
                    try? script(connection)
                    shared.close(socket)
                }
                if served == nil { shared.close(socket) }
            }
            listener.close()
        }
    }

    /// Sends the same response to every request, and keeps connections open.
    package convenience init(
        socketPath: String? = nil,
        status: String = "200 OK",
        fields: [String] = [],
        content: String = "done"
    ) throws {
        try self.init(socketPath: socketPath) { connection in
            while let request = try connection.receiveRequest() {
                try connection.response(
                    status,
                    fields: fields,
                    content: content,
                    hasContent: !request.line.hasPrefix("HEAD ")
                )
            }
        }
    }

    deinit { stop() }

    /// All requests to a target, complete or not.
    package func requests(to target: String) -> [Request] {
        book.all.filter { $0.target == target }
    }

    /// Forgets requests, whose contents use memory.
    package func forget(where isForgotten: (Request) -> Bool) { book.forget(where: isForgotten) }

    /// Closes every connection and the listener.
    package func stop() {
        // Within the lock: no descriptor may be reused meanwhile.
        let isFirst = state.update { state in
            defer { state.isStopped = true }
            for socket in state.open { socket.end() }
            return !state.isStopped
        }
        if isFirst { listener.end() }
    }

    private final class Shared: Sendable {
        private let origin: Mutex<Weak>
        private struct Weak { weak var value: LoopbackOrigin? }
        init(_ origin: LoopbackOrigin) { self.origin = Mutex(Weak(value: origin)) }
        var value: LoopbackOrigin? { origin.withLock { $0.value } }

        func close(_ socket: StreamSocket) {
            value?.forget(socket)
            socket.close()
        }
    }

    private func add(_ socket: StreamSocket) -> Bool {
        state.update {
            guard !$0.isStopped else { return false }
            $0.accepted += 1
            $0.open.append(socket)
            return true
        }
    }

    private func forget(_ socket: StreamSocket) {
        state.update { $0.open.removeAll { $0.number == socket.number } }
    }

    /// An origin's requests, from their header sections on.
    final class Book: Sendable {
        private struct State {
            var count = 0
            var requests: [Request] = []
        }

        private let state = Monitor(State())
        private let remembers: Bool

        init(remembers: Bool) { self.remembers = remembers }

        var all: [Request] { state.update { $0.requests } }

        func add(_ request: Request) -> Request {
            state.update { state in
                var request = request
                request.number = state.count
                state.count += 1
                if remembers { state.requests.append(request) }
                return request
            }
        }

        /// Changes a request, if it is still recorded.
        func change(_ number: Int, _ body: (inout Request) -> Void) {
            state.update { state in
                guard let index = state.requests.lastIndex(where: { $0.number == number }) else {
                    return
                }
                body(&state.requests[index])
            }
        }

        func forget(where isForgotten: (Request) -> Bool) {
            state.update { $0.requests.removeAll(where: isForgotten) }
        }
    }
}
