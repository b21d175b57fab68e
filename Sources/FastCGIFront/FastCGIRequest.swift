// One libfcgi request structure: begun on a connection, ended with or without END_REQUEST.
//
// It knows records and streams by libfcgi's public interface only, and nothing of HTTP. libfcgi's
// own accept and close stay unused: its accept cannot be limited in time, and its close reads what a
// peer sends for as long as the peer sends. So does its reading of parameters (RequestBeginning says why). Invariant: the structure is allocated once in the thread
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

    /// Takes up a request whose begin and parameters were received, up to its content.
    ///
    /// - Parameters:
    ///   - beginning: what was received.
    ///   - prelude: what libfcgi reads in its place, from `prelude()`.
    ///   - connection: where the content comes from.
    /// - Returns: false where libfcgi does not take it up.
    func begin(
        _ beginning: RequestBeginning,
        after prelude: consuming Descriptor,
        on connection: Connection
    ) -> Bool {
        // libfcgi closes what it does not like to read, so this is its own until it has taken it.
        let number = prelude.release()
        FCGX_InitRequest(raw, -1, 0)
        raw.pointee.ipcFd = number
        raw.pointee.keepConnection = 1
        // Closing then is close(2) and no more.
        raw.pointee.detached = 1
        guard FCGX_Accept_r(raw) == 0 else { return false }
        raw.pointee.ipcFd = connection.number
        raw.pointee.requestId = Int32(beginning.id)
        _ = Descriptor(owning: number)
        return true
    }

    /// A request without parameters, for libfcgi to read.
    ///
    /// - Throws: `SystemError` when the process has no descriptor left.
    static func prelude() throws(SystemError) -> Descriptor { try .holding(bareRequest) }

    /// The begin of a responder's request with the number 1, and the end of its parameters.
    private static let bareRequest: [UInt8] = [
        1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0,
        1, 4, 0, 1, 0, 0, 0, 0,
    ]

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
