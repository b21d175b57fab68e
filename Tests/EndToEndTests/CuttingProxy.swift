// A TCP proxy between a client and a server on this machine, which cuts and holds back on order: what a
// network does that goes away, and one that is slow.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport

/// The proxy; what is connected through it is cut when it is let go of.
final class CuttingProxy: Sendable {
    private struct State {
        var isCut = false
        var cuts = 0
        var refused = 0
        var passed = 0
        var allowance = Int.max
        /// Where the next cuts are, in bytes of clients in all.
        var places: [Int] = []
        var mayCut: @Sendable () -> Bool = { true }
        var open: [StreamSocket] = []
    }

    /// Where it listens.
    let port: Int
    private let listener: StreamSocket
    private let state: Monitor<State>

    /// Listens before a server that may start later.
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

    /// Breaks every connection, and those that come until `mend()`.
    func cut() {
        state.update { state in
            state.isCut = true
            state.cuts += 1
            for socket in state.open { socket.end() }
        }
    }

    /// Lets connections through again.
    func mend() { state.update { $0.isCut = false } }

    /// How many connections were refused while it was cut.
    var refused: Int { state.update { $0.refused } }

    /// How many bytes of clients have reached the server.
    var passed: Int { state.update { $0.passed } }

    /// Breaks every connection once, each time that so many bytes of clients have come in all.
    ///
    /// The last of them do not reach the server. While `mayCut` says no, a cut that is due waits for the bytes
    /// behind.
    func cut(at places: [Int], if mayCut: @escaping @Sendable () -> Bool = { true }) {
        state.update { ($0.places, $0.mayCut) = (places.sorted(), mayCut) }
    }

    /// How many of these cuts are still to come.
    var cutsLeft: Int { state.update { $0.places.count } }

    /// Holds each connection at so many bytes from the client; nil: no more.
    func hold(at bytes: Int?) { state.update { $0.allowance = bytes ?? .max } }

    private static func serve(_ client: StreamSocket, _ server: Int, _ state: Monitor<State>) {
        // Held back here, not in buffers: the browser shall not take for sent what nobody has.
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
            // Inside the lock, so that no number can be closed and given away before it is forgotten.
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
            guard let room, room > 0, let bytes = client.receive(atMost: room), !bytes.isEmpty
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
