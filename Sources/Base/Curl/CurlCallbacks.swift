// The functions libcurl calls while it works: each finds its transfer and passes the call on.
//
// Nothing is decided here. The invariant: no Swift error leaves a callback; the transfer keeps it
// and libcurl is told to stop.

import CSpoolgateCurl
import Glibc

/// What becomes of one piece of content that libcurl asks for.
package enum ContentStep {
    /// The transfer put this many bytes into the buffer; 0 at the end.
    case bytes(Int)
    /// Read what the other side says first; then, after `CurlConnection.resume`, ask again.
    case pause
    /// Give up.
    case stop
}

/// One transfer, as libcurl's callbacks ask and tell it.
package protocol CurlTransfer: AnyObject {
    /// Whether a socket may be opened.
    func mayConnect() -> Bool
    /// Called with a connection ready, before the first byte of the request; false: give up.
    func mayBeginRequest() -> Bool
    /// Called after every step and at least once a second, with bytes of content; false: give up.
    func watchProgress(downloaded: Int64, uploaded: Int64) -> Bool
    /// Takes one line of a head, or of the trailer section; false: give up.
    func takeHeadLine(_ line: UnsafeRawBufferPointer) -> Bool
    /// Takes content of the final response, which is not empty; false: give up.
    func takeContent(_ content: UnsafeRawBufferPointer) -> Bool
    /// Fills `buffer` with the next content.
    func giveContent(_ buffer: UnsafeMutableRawBufferPointer) -> ContentStep
    /// Goes back to the start of the content for a second try; false where it cannot.
    func restartContent() -> Bool
    /// Whether what the other side says now may be the answer, readable without TLS.
    var awaitsAnswer: Bool { get }
}

extension CurlConnection {
    /// Has libcurl call the transfer in `context`, whichever is under way.
    func setCallbacks() {
        let this = Unmanaged.passUnretained(context).toOpaque()
        _ = spoolgate_curl_set_open_socket(easy, this) { this, _, address in
            guard let found = found(this), let address, found.transfer?.mayConnect() ?? true else {
                return CURL_SOCKET_BAD
            }
            return found.openSocket(address)
        }
        _ = spoolgate_curl_set_close_socket(easy, this) { this, socket in
            found(this)?.closeSocket(socket) ?? close(socket)
        }
        _ = spoolgate_curl_set_prerequest(easy, this) { this, _, _, _, _ in
            found(this)?.transfer?.mayBeginRequest() ?? false
                ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT
        }
        _ = spoolgate_curl_set_progress(easy, this) { this, _, downloaded, _, uploaded in
            found(this)?.transfer?
                .watchProgress(downloaded: Int64(downloaded), uploaded: Int64(uploaded)) ?? true
                ? 0 : 1
        }
        _ = spoolgate_curl_set_head_function(easy, this) { bytes, size, count, this in
            let line = UnsafeRawBufferPointer(start: bytes, count: size * count)
            return found(this)?.transfer?.takeHeadLine(line) ?? false ? line.count : 0
        }
        _ = spoolgate_curl_set_write_function(easy, this) { bytes, size, count, this in
            let content = UnsafeRawBufferPointer(start: bytes, count: size * count)
            // An empty write says nothing, and 0 is also the right answer to it.
            guard !content.isEmpty else { return 0 }
            return found(this)?.transfer?.takeContent(content) ?? false ? content.count : 0
        }
        _ = spoolgate_curl_set_read_function(easy, this) { bytes, size, count, this in
            let buffer = UnsafeMutableRawBufferPointer(start: bytes, count: size * count)
            switch found(this)?.transfer?.giveContent(buffer) ?? .stop {
            case .bytes(let count): return count
            case .pause: return Int(CURL_READFUNC_PAUSE)
            case .stop: return Int(CURL_READFUNC_ABORT)
            }
        }
        _ = spoolgate_curl_set_seek(easy, this) { this, offset, _ in
            offset == 0 && found(this)?.transfer?.restartContent() ?? false
                ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_FAIL
        }
    }
}

private func found(_ context: UnsafeMutableRawPointer?) -> CurlContext? {
    context.map { Unmanaged<CurlContext>.fromOpaque($0).takeUnretainedValue() }
}
