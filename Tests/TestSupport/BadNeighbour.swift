// A relay before a real server (plain or TLS), with its own port and host name, that fails in a chosen way and recovers
// on demand.
//
// Invariant: after recovery it behaves exactly as before, so a request that fails then shows a bug in the tested code.

import Foundation
import SpoolgatePosix

/// The relay.
package final class BadNeighbour: Sendable {
    /// Its ways to fail.
    package enum Trouble: Sendable, Equatable {
        /// Its host name has no address; clients that know the address still connect.
        case noName
        case refuses
        /// Another protocol, even within a TLS handshake.
        case notHTTP
        /// Accepts connections and sends nothing.
        case hangs
        /// Sends its header section byte by byte and never completes it.
        case trickles
        /// Closes the connection after this many bytes from the client, including the header section.
        case closes(after: Int)
        /// As `closes`, with a reset.
        case resets(after: Int)
        case closesInAnswer
        /// A proxy in front responds with 504 after this time without bytes, and closes both connections.
        case timesOut(after: Duration)
        /// Responds to each request: the status line without the version, then fields.
        case responses(String, [String])

        /// Responses after the content was read.
        package static let answersOfItsOwn: [Trouble] = [
            .responses("401 Unauthorized", ["WWW-Authenticate: Bearer"]),
            .responses("307 Temporary Redirect", ["Location: /elsewhere"]),
            .responses("503", []),
            .responses(
                "401 Unauthorized",
                ["WWW-Authenticate: Negotiate", "WWW-Authenticate: NTLM"]
            ),
        ]
        /// Those that leave a request without a response.
        package static let failures: [Trouble] = [
            .noName, .refuses, .notHTTP, .hangs, .trickles, .closes(after: 0), .closes(after: 60),
            .closes(after: 100_000), .resets(after: 0), .resets(after: 100_000), .closesInAnswer,
        ]
    }

    package let name = "n\(UInt64.random(in: 0...(.max)))\(TestNames.suffix)"
    package let port: UInt16
    package var base: String { "http://\(name):\(port)" }
    /// For a real server that speaks TLS.
    package var secureBase: String { "https://\(name):\(port)" }
    /// The connections that met the current trouble, without lookups of the name.
    package var met: Int { state.update { $0.met } }

    private struct State {
        var trouble: Trouble?
        var met = 0
        var listener: StreamSocket?
        /// Holds the port while it refuses connections.
        var placeholder: StreamSocket?
        var open: [StreamSocket] = []
        var isEnded = false
    }

    private let server: UInt16
    private let state = Monitor(State())

    /// Starts a healthy relay before a server on this machine.
    package init(before server: UInt16) throws {
        self.server = server
        let listener = try StreamSocket(listeningOn: .port(UInt16(try FreePort.take(1)[0])))
        port = listener.port
        TestNames.set(name, isKnown: true)
        try accept(on: listener)
    }

    deinit {
        TestNames.set(name, isKnown: false)
        let (listener, placeholder) = state.update { state in
            state.isEnded = true
            for socket in state.open { socket.end() }
            return (state.listener, state.placeholder)
        }
        listener?.end()
        placeholder?.close()
    }

    /// Starts to fail, or recovers (nil), and closes the open connections.
    package func become(_ trouble: Trouble?) throws {
        let before = state.update { state in
            let before = state
            (state.trouble, state.met) = (trouble, 0)
            state.placeholder = nil
            if trouble == .refuses { state.listener = nil }
            for socket in state.open { socket.end() }
            return before
        }
        TestNames.set(name, isKnown: trouble != .noName)
        if trouble == .refuses, let listener = before.listener {
            listener.end()
            let placeholder = try eventually("port \(port) is free") {
                try? StreamSocket(boundTo: port)
            }
            state.update { $0.placeholder = placeholder }
        }
        if trouble != .refuses, before.listener == nil {
            before.placeholder?.close()
            try accept(
                on: try eventually("port \(port) is free") {
                    try? StreamSocket(listeningOn: .port(port))
                }
            )
        }
    }

    private func accept(on listener: StreamSocket) throws {
        state.update { $0.listener = listener }
        // Threads hold it weakly, so that its release ends them.
        try SpoolgatePosix.Thread.start(name: "neighbour") { [weak self] in
            while true {
                let number = Glibc.accept(listener.number, nil, nil)
                guard number >= 0 else { break }
                let socket = StreamSocket(number: number)
                guard let self, self.state.update({ !$0.isEnded }) else {
                    socket.close()
                    break
                }
                self.take(socket)
            }
            listener.close()
        }
    }

    private func take(_ socket: StreamSocket) {
        let trouble = state.update { state in
            state.open.append(socket)
            if state.trouble != nil { state.met += 1 }
            return state.trouble
        }
        let server = server
        let finish: @Sendable () -> Void = { [weak self] in
            // Within the lock: its descriptor must not be reused before its removal.
            self?.state.update { $0.open.removeAll { $0.number == socket.number } }
            socket.close()
        }
        let started: Void? = try? SpoolgatePosix.Thread.start(name: "neighbour-conn") {
            Self.serve(socket, trouble, server)
            finish()
        }
        if started == nil { finish() }
    }

    private static func serve(_ client: StreamSocket, _ trouble: Trouble?, _ server: UInt16) {
        client.setPatience(seconds: 600)
        client.sendAtOnce()
        switch trouble {
        case nil, .noName: relay(client, to: server)
        case .timesOut(let patience): relay(client, to: server, patience: patience)
        case .closes(let count): relay(client, to: server, maximum: count)
        case .resets(let count):
            relay(client, to: server, maximum: count)
            client.resetAtEnd()
        case .refuses: break
        case .hangs: drain(client)
        case .notHTTP:
            client.send(Array("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n".utf8))
            drain(client)
        case .trickles:
            _ = client.receive()
            for byte in "HTTP/1.1 200 OK\r\nX-Long: ".utf8 where client.send([byte]) {
                usleep(5_000)
            }
            while client.send([UInt8(ascii: "x")]) { usleep(20_000) }
        case .closesInAnswer:
            let connection = OriginConnection(client, .init(remembers: false))
            guard (try? connection.receiveRequest(keptContent: 0)) != nil else { return }
            client.send(Array("HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\nhalf".utf8))
        case .responses(let status, let fields):
            let connection = OriginConnection(client, .init(remembers: false))
            while let request = try? connection.receiveRequest(keptContent: 0) {
                let sent: Void? = try? connection.response(
                    status,
                    fields: fields,
                    hasContent: request.method != "HEAD"
                )
                guard sent != nil else { return }
            }
        }
    }

    private static func drain(_ client: StreamSocket) {
        while let bytes = client.receive(), !bytes.isEmpty {}
    }

    /// Relays until one side ends, `most` bytes from the client were relayed, or no byte arrived for `patience`.
    private static func relay(
        _ client: StreamSocket,
        to server: UInt16,
        maximum: Int? = nil,
        patience: Duration? = nil
    ) {
        guard let upstream = try? StreamSocket(connectedTo: .port(server), patience: 600) else {
            return
        }
        let lastSent = Monitor(ContinuousClock.now)
        if let patience {
            let microseconds = Int(patience / .microseconds(1))
            upstream.set(
                SOL_SOCKET,
                SO_RCVTIMEO,
                timeval(tv_sec: microseconds / 1_000_000, tv_usec: microseconds % 1_000_000)
            )
        }
        defer { upstream.close() }
        let isBack = Monitor(false)
        let back: Void? = try? SpoolgatePosix.Thread.start(name: "neighbour-back") {
            while true {
                let bytes = upstream.receive()
                if let bytes, !bytes.isEmpty, client.send(bytes) { continue }
                guard bytes == nil, errno == EAGAIN, let patience else { break }
                if ContinuousClock.now - lastSent.update({ $0 }) < patience { continue }
                client.send(
                    Array("HTTP/1.1 504 Gateway Time-out\r\nContent-Length: 0\r\n\r\n".utf8)
                )
                break
            }
            client.end()
            isBack.update { $0 = true }
        }
        guard back != nil else { return }
        var left = maximum ?? .max
        while left > 0, let bytes = client.receive(upTo: min(left, 1 << 16)), !bytes.isEmpty,
            upstream.send(bytes)
        {
            if maximum != nil { left -= bytes.count }
            lastSent.update { $0 = .now }
        }
        upstream.end()
        client.end()
        // Both descriptors are in use until then.
        _ = isBack.wait(until: .never) { $0 ? true : nil }
    }
}

extension StreamSocket {
    /// A socket bound to a port, not listening.
    fileprivate init(boundTo port: UInt16) throws(SystemError) {
        try self.init(for: .port(port))
        set(SOL_SOCKET, SO_REUSEADDR, Int32(1))
        do throws(SystemError) { try bind(to: .port(port)) } catch {
            close()
            throw error
        }
    }
}
