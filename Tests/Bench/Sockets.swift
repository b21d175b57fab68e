// Stream sockets as the measurements want them: raw numbers, so that the client costs little.

import Glibc
import SpoolgateTestSupport

/// Connects to `address`, with 120 s of patience for each later read and write.
///
/// - Returns: a descriptor that the caller closes.
func connectSocket(to address: SocketAddress) throws -> Int32 {
    try StreamSocket(connectedTo: address, patience: 120).number
}

/// A port of 127.0.0.1 that nobody listens on at this moment.
func freePort() throws -> UInt16 {
    let socket = try StreamSocket(listeningOn: .port(0))
    defer { socket.close() }
    return socket.port
}

/// Writes all of `bytes`.
///
/// - Returns: whether the peer, or the disk, took them; false leaves the reason in `errno`.
func writeAll(_ descriptor: Int32, _ bytes: UnsafeRawBufferPointer) -> Bool {
    var rest = bytes
    while let start = rest.baseAddress, !rest.isEmpty {
        let count = write(descriptor, start, rest.count)
        if count > 0 {
            rest = UnsafeRawBufferPointer(rebasing: rest[count...])
        } else if errno != EINTR {
            return false
        }
    }
    return true
}
