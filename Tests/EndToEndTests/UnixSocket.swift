// The listeners of this machine's unix sockets.

import SpoolgateTestSupport

enum UnixSocket {
    static func accepts(_ path: String) -> Bool {
        guard let socket = try? StreamSocket(connectedTo: .path(path), patience: 1) else {
            return false
        }
        socket.close()
        return true
    }
}
