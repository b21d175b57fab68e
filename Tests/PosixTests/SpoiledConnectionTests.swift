// A response that is marked as incomplete: its bytes first, then the mark.

import Glibc
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@Suite("A spoiled connection")
struct SpoiledConnectionTests {
    private func pair(_ address: SocketAddress) throws -> (Connection, StreamSocket) {
        let listener = try StreamSocket(listeningOn: address)
        defer { listener.close() }
        let target: SocketAddress =
            if case .port = address { .port(listener.port) } else { address }
        let peer = try StreamSocket(connectedTo: target, patience: 60)
        return (Connection(Descriptor(owning: accept(listener.number, nil, nil))), peer)
    }

    @Test("the peer reads all bytes before it detects the end", arguments: [true, false])
    func order(isLocal: Bool) throws {
        let directory = try ScratchDirectory()
        let (connection, peer) = try pair(isLocal ? .path(directory.file("s")) : .port(0))
        defer { peer.close() }
        let bytes = [UInt8](repeating: 7, count: 50_000)
        #expect(connection.send(bytes))
        try Thread.start(name: "spoiling") {
            connection.spoil(within: .seconds(60))
            connection.cut()
        }
        var read: [UInt8] = []
        while read.count < bytes.count {
            // The mark never arrives in one read with the last bytes.
            read += try #require(peer.receive(upTo: 1 << 16))
        }
        #expect(read == bytes)
        let mark = peer.receive()
        if isLocal {
            #expect(mark == [UInt8](repeating: 0xff, count: 8))
        } else {
            #expect(mark == nil)
            #expect(errno == ECONNRESET)
        }
    }

    @Test(
        "a peer that does not read, or has left, delays nothing for long",
        arguments: [true, false]
    )
    func noReader(isGone: Bool) throws {
        let directory = try ScratchDirectory()
        let (connection, peer) = try pair(.path(directory.file("s")))
        #expect(connection.send([1]))
        if isGone { peer.close() }
        connection.spoil(within: isGone ? .seconds(3600) : .milliseconds(1))
        connection.cut()
        if !isGone { peer.close() }
    }
}
