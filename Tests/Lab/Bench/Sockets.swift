// Stream sockets as bare descriptors, so that the client costs little.

import Glibc
import SpoolgateTestSupport

/// Connects with a timeout of 120 s for each read and write; the caller closes the descriptor.
func connectSocket(to address: SocketAddress) throws -> Int32 {
    try StreamSocket(connectedTo: address, patience: 120).number
}

func freePort() throws -> UInt16 {
    let socket = try StreamSocket(listeningOn: .port(0))
    defer { socket.close() }
    return socket.port
}

/// Writes all of `bytes`; if false, `errno` has the reason.
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
