// The functions libcurl calls while it works: each finds its attempt and passes the call on.
//
// Nothing is decided here. The invariant: no Swift error leaves a callback; the attempt keeps it
// and libcurl is told to stop.

import CCurl
import Glibc

extension CurlConnection {
    /// Has libcurl call the attempt in `context`, whichever is under way.
    func setCallbacks() {
        let this = Unmanaged.passUnretained(context).toOpaque()
        _ = spoolgate_curl_set_open_socket(easy, this) { this, _, address in
            guard let found = found(this), let address, found.attempt?.mayConnect() ?? true else {
                return CURL_SOCKET_BAD
            }
            return found.openSocket(address)
        }
        _ = spoolgate_curl_set_close_socket(easy, this) { this, socket in
            found(this)?.closeSocket(socket) ?? close(socket)
        }
        _ = spoolgate_curl_set_prerequest(easy, this) { this, _, _, _, _ in
            found(this)?.attempt?.mayBeginRequest() ?? false
                ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT
        }
        _ = spoolgate_curl_set_progress(easy, this) { this, _, _, _, uploaded in
            found(this)?.attempt?.watchProgress(uploaded: Int64(uploaded)) ?? true ? 0 : 1
        }
        _ = spoolgate_curl_set_head_function(easy, this) { bytes, size, count, this in
            let line = UnsafeRawBufferPointer(start: bytes, count: size * count)
            return found(this)?.attempt?.takeHeadLine(line) ?? false ? line.count : 0
        }
        _ = spoolgate_curl_set_write_function(easy, this) { bytes, size, count, this in
            let content = UnsafeRawBufferPointer(start: bytes, count: size * count)
            // An empty write says nothing, and 0 is also the right answer to it.
            guard !content.isEmpty else { return 0 }
            return found(this)?.attempt?.takeContent(content) ?? false ? content.count : 0
        }
        _ = spoolgate_curl_set_read_function(easy, this) { bytes, size, count, this in
            let buffer = UnsafeMutableRawBufferPointer(start: bytes, count: size * count)
            switch found(this)?.attempt?.giveContent(buffer) ?? .stop {
            case .bytes(let count): return count
            case .pause: return Int(CURL_READFUNC_PAUSE)
            case .stop: return Int(CURL_READFUNC_ABORT)
            }
        }
        _ = spoolgate_curl_set_seek(easy, this) { this, offset, _ in
            offset == 0 && found(this)?.attempt?.restartContent() ?? false
                ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_FAIL
        }
    }
}

private func found(_ context: UnsafeMutableRawPointer?) -> CurlContext? {
    context.map { Unmanaged<CurlContext>.fromOpaque($0).takeUnretainedValue() }
}
