// A TCP proxy that cuts or holds back connections, like an unreliable or slow network.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport

/// It cuts its connections when released.
final class CuttingProxy: Sendable {
    private struct State {
        var isCut = false
        var cuts = 0
        var refused = 0
        var passed = 0
        var allowance = Int.max
        /// The next cuts, in bytes from all clients.
        var places: [Int] = []
        var mayCut: @Sendable () -> Bool = { true }
        var open: [StreamSocket] = []
    }

    let port: Int
    private let listener: StreamSocket
    private let state: Monitor<State>

    /// Listens for connections to a server that may start later.
    init(to server: Int) throws {
        let listener = try StreamSocket(listeningOn: .port(0))
        let state = Monitor(State())
        (self.listener, self.state) = (listener, state)
        port = Int(listener.port)
        try SpoolgatePosix.Thread.start(name: "proxy") {
            while true {
                let number = accept(listener.number, nil, nil)
                guard number >= 0 else { break }
                Self.serve(StreamSocket(number: number), server, state)
            }
            listener.close()
        }
    }

    deinit {
        cut()
        listener.end()
    }

    func cut() {
        state.update { state in
            state.isCut = true
            state.cuts += 1
            for socket in state.open { socket.end() }
        }
    }

    func restore() { state.update { $0.isCut = false } }

    var refused: Int { state.update { $0.refused } }

    /// The number of clients' bytes that reached the server.
    var passed: Int { state.update { $0.passed } }

    /// Breaks every connection once at each of these totals of bytes from clients.
    ///
    /// The last of these bytes do not reach the server. While `mayCut` returns false, a due cut waits for later bytes.
    func cut(at places: [Int], if mayCut: @escaping @Sendable () -> Bool = { true }) {
        state.update { ($0.places, $0.mayCut) = (places.sorted(), mayCut) }
    }

    var cutsLeft: Int { state.update { $0.places.count } }

    /// Stops reading from each client after this many bytes; nil: no limit.
    func hold(at bytes: Int?) { state.update { $0.allowance = bytes ?? .max } }

    private static func serve(_ client: StreamSocket, _ server: Int, _ state: Monitor<State>) {
        // Larger buffers would let the browser count unsent bytes as sent.
        client.set(SOL_SOCKET, SO_RCVBUF, Int32(1 << 16))
        guard let upstream = try? StreamSocket(connectedTo: .port(UInt16(server)), patience: 600)
        else { return client.close() }
        client.setPatience(seconds: 600)
        client.sendAtOnce()
        let ends = [client, upstream]
        let cuts = state.update { state -> Int? in
            guard !state.isCut else {
                state.refused += 1
                return nil
            }
            state.open += ends
            return state.cuts
        }
        guard let cuts else {
            for socket in ends { socket.close() }
            return
        }
        let left = Monitor(2)
        let end: @Sendable () -> Void = {
            for socket in ends { socket.end() }
            let isLast = left.update { left in
                left -= 1
                return left == 0
            }
            guard isLast else { return }
            // Inside the lock, so that no descriptor is closed and reused before its removal.
            state.update { state in
                state.open.removeAll { open in ends.contains { $0.number == open.number } }
                for socket in ends { socket.close() }
            }
        }
        let pumps: [@Sendable () -> Void] = [
            {
                pump(from: client, to: upstream, held: state, since: cuts)
                end()
            },
            {
                while let bytes = upstream.receive(), !bytes.isEmpty, client.send(bytes) {}
                end()
            },
        ]
        for body in pumps where (try? SpoolgatePosix.Thread.start(name: "proxy-pump", body)) == nil
        { end() }
    }

    private static func pump(
        from client: StreamSocket,
        to server: StreamSocket,
        held state: Monitor<State>,
        since cuts: Int
    ) {
        var passed = 0
        while true {
            let done = passed
            let room = state.wait(until: .after(.seconds(600))) { state -> Int? in
                if state.cuts != cuts { return 0 }
                return state.allowance > done ? min(1 << 14, state.allowance - done) : nil
            }
            guard let room, room > 0, let bytes = client.receive(upTo: room), !bytes.isEmpty
            else { return }
            passed += bytes.count
            let count = bytes.count
            let isCut = state.update { state in
                state.passed += count
                guard let place = state.places.first, state.passed >= place, state.mayCut() else {
                    return false
                }
                state.places.removeFirst()
                state.cuts += 1
                for socket in state.open { socket.end() }
                return true
            }
            guard !isCut, server.send(bytes) else { return }
        }
    }
}
