// The functions that libcurl calls, which forward to the transfer.
//
// Invariant: no Swift error leaves a callback. The transfer stores the error, and libcurl ends the transfer.

import CSpoolgateCurl
import Glibc

/// The result of a call for more content.
package enum ContentStep {
    /// The transfer wrote this many bytes. 0 means that the content has ended.
    case bytes(Int)
    /// The transfer has no bytes yet. libcurl calls again after `CurlConnection.resume`.
    case pause
    case stop
}

/// The callbacks of one transfer.
package protocol CurlTransfer: AnyObject {
    /// Called before a socket is opened; returns false to prevent the opening.
    func mayConnect() -> Bool
    /// Called before the first byte of the request; returns false to abort.
    func mayBeginRequest() -> Bool
    /// Called at least once a second with the numbers of content bytes so far; returns false to abort.
    func watchProgress(downloaded: Int64, uploaded: Int64) -> Bool
    /// Called for each line of a head or a trailer section; returns false to abort.
    func takeHeadLine(_ line: UnsafeRawBufferPointer) -> Bool
    /// Called for each nonempty piece of the final response's content; returns false to abort.
    func takeContent(_ content: UnsafeRawBufferPointer) -> Bool
    /// Called repeatedly to fill `buffer` with content of the request.
    func giveContent(_ buffer: UnsafeMutableRawBufferPointer) -> ContentStep
    /// Rewinds the content for a second try; returns false if that is impossible.
    func restartContent() -> Bool
    /// Whether the unread bytes of a closed connection may be the response. Must be false with TLS, which encrypts the
    /// bytes.
    var awaitsAnswer: Bool { get }
}

extension CurlConnection {
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
            // An empty write has no meaning, and 0 also reports its success.
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
