// An HTTP/1.1 origin server that misbehaves on order: every connection runs a script, line by line
// what a test wants the upstream to do.
//
// It does not: speak TLS, check what it is sent beyond framing, send anything the script did not say,
// handle trailers, pipelining or Expect, limit sizes, or survive a hostile peer. A script that throws
// ends its connection and nothing else. The invariant: each connection has its own thread, and
// `stop()` (or deinit) ends all of them, so no test waits for a socket for ever.

import Foundation
import SpoolgatePosix
import Synchronization

/// A server on a loopback port or a unix socket.
package final class LoopbackOrigin: Sendable {
    /// One request, as far as it came.
    package struct Request: Sendable {
        /// Which it was of all that the origin was sent, from 0 on.
        package var number = 0
        /// The request line.
        package var line: String
        /// The field lines, in order, as sent; bytes above 0x7f as ISO 8859-1.
        package var fieldLines: [String]
        /// The content, unchunked; only its first `keptContent` bytes where the script said so.
        package var content: [UInt8] = []
        /// Bytes of content in all.
        package var contentLength = 0
        /// Whether its content came whole.
        package var isWhole = false
        /// Whether the whole response was sent, not whether anybody read it.
        package var isAnswered = false

        /// The method, of the request line.
        package var method: String { word(0) }
        /// The target, of the request line.
        package var target: String { word(1) }

        private func word(_ index: Int) -> String {
            let words = line.components(separatedBy: " ")
            return index < words.count ? words[index] : ""
        }

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
    package var requests: [Request] { book.all.filter(\.isWhole) }
    /// Every request so far, whole or not.
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
    ///   - socketPath: a unix socket to make; nil: a free port of 127.0.0.1.
    ///   - receiveBuffer: SO_RCVBUF of every connection; nil: the system's.
    ///   - remembers: whether it keeps what it was sent.
    ///   - script: run on each connection; the connection is closed when it returns.
    /// - Throws: `SystemError` when the address cannot be had.
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
                // Threads hold the origin weakly: a test that lets go of it stops it.
                let connection = OriginConnection(socket, book)
                let served: Void? = try? SpoolgatePosix.Thread.start(name: "origin-conn") {
                    // A script that throws has said all it wanted to say by its connection's end.
                    try? script(connection)
                    shared.close(socket)
                }
                if served == nil { shared.close(socket) }
            }
            listener.close()
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

    /// What it was sent to a target, in order, whole or not.
    package func requests(to target: String) -> [Request] {
        book.all.filter { $0.target == target }
    }

    /// Forgets requests: contents are large.
    package func forget(where isForgotten: (Request) -> Bool) { book.forget(where: isForgotten) }

    /// Ends every connection and listens no more.
    package func stop() {
        // Inside the lock, so that no number can be closed and given away meanwhile.
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

    /// What an origin was sent, from the heads on.
    final class Book: Sendable {
        private struct State {
            var count = 0
            var requests: [Request] = []
        }

        private let state = Monitor(State())
        private let remembers: Bool

        init(remembers: Bool) { self.remembers = remembers }

        var all: [Request] { state.update { $0.requests } }

        /// Enters a request and gives it its number.
        func add(_ request: Request) -> Request {
            state.update { state in
                var request = request
                request.number = state.count
                state.count += 1
                if remembers { state.requests.append(request) }
                return request
            }
        }

        /// Changes a request, if it is still remembered.
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
