// One libfcgi request structure: begun on a connection, ended with or without END_REQUEST.
//
// It knows records and streams by libfcgi's public interface only, and nothing of HTTP. libfcgi's
// own accept and close stay unused: its accept cannot be limited in time, and its close reads what a
// peer sends for as long as the peer sends. Invariant: the structure is allocated once in the thread
// that uses it and never moves, because libfcgi's streams point back to it.

import CFastCGI
import Posix

/// A reusable libfcgi request.
///
/// One thread only.
struct FastCGIRequest: ~Copyable {
    /// The structure; its streams are there between `begin` and `end`.
    let raw: UnsafeMutablePointer<FCGX_Request>

    /// Initialises libfcgi, once; 0 on success.
    ///
    /// The signal handlers it installs are undone.
    static let library: Int32 = Signals.keepingDispositions { FCGX_Init() }

    /// Allocates an idle request.
    init() {
        raw = .allocate(capacity: 1)
        FCGX_InitRequest(raw, -1, 0)
    }

    deinit {
        FCGX_Free(raw, 0)
        raw.deallocate()
    }

    /// Receives a request's beginning and parameters.
    ///
    /// - Returns: false if none came: the peer closed, was too slow or spoke no FastCGI.
    /// - Throws: `SystemError` when the process has no descriptor left.
    func begin(on connection: Connection) throws(SystemError) -> Bool {
        // libfcgi closes the connection when it does not like what it reads. It gets a descriptor
        // of its own for so long, so that the number of ours always means this connection.
        let copy = try connection.duplicate()
        FCGX_InitRequest(raw, -1, 0)
        raw.pointee.ipcFd = copy
        raw.pointee.keepConnection = 1
        // Closing then is close(2) and no more.
        raw.pointee.detached = 1
        guard FCGX_Accept_r(raw) == 0 else { return false }
        raw.pointee.ipcFd = connection.number
        _ = Descriptor(owning: copy)
        return true
    }

    /// Sends what is buffered, the end of the response and END_REQUEST, and frees the streams.
    /// - Returns: whether all of it was sent.
    func end() -> Bool {
        // The error stream first: it counts among the writers, and the last one to close ends the
        // request.
        let isSent = FCGX_FClose(raw.pointee.err) == 0 && FCGX_FClose(raw.pointee.out) == 0
        free()
        return isSent
    }

    /// Frees the streams; nothing more is sent.
    func free() {
        FCGX_Free(raw, 0)
        raw.pointee.ipcFd = -1
    }
}
