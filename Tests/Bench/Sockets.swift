// Stream sockets as the measurements want them: raw numbers, so that the client costs little.

import Glibc
import Posix
import TestSupport

/// Connects to `address`, with 120 s of patience for each later read and write.
///
/// - Returns: a descriptor that the caller closes.
func connectSocket(to address: SocketAddress) throws(BenchFailure) -> Int32 {
    do throws(SystemError) {
        return try StreamSocket(connectedTo: address, patience: 120).number
    } catch {
        throw BenchFailure("\(error)")
    }
}

/// A port of 127.0.0.1 that nobody listens on at this moment.
func freePort() throws(BenchFailure) -> UInt16 {
    do throws(SystemError) {
        let socket = try StreamSocket(listeningOn: .port(0))
        defer { socket.close() }
        return socket.port
    } catch {
        throw BenchFailure("\(error)")
    }
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
