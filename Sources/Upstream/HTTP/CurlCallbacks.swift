// The functions libcurl calls while it works: each finds its attempt and passes the call on.
//
// Nothing is decided here. The invariant: no Swift error leaves a callback; the attempt keeps it
// and libcurl is told to stop.

import CCurl

extension CurlConnection {
    /// Has libcurl call the attempt in `context`.
    ///
    /// The sockets' functions stay with the connection.
    func setCallbacks(hasContent: Bool) {
        let this = Unmanaged.passUnretained(context).toOpaque()
        _ = spoolgate_curl_set_open_socket(easy, openSocketForUpstream, this)
        _ = spoolgate_curl_set_close_socket(easy, closeSocketForUpstream, this)
        _ = spoolgate_curl_set_prerequest(easy, beginRequestForUpstream, this)
        _ = spoolgate_curl_set_progress(easy, watchProgressForUpstream, this)
        _ = spoolgate_curl_set_data_function(
            easy,
            CURLOPT_HEADERFUNCTION,
            takeHeadLineForUpstream,
            CURLOPT_HEADERDATA,
            this
        )
        _ = spoolgate_curl_set_data_function(
            easy,
            CURLOPT_WRITEFUNCTION,
            takeContentForUpstream,
            CURLOPT_WRITEDATA,
            this
        )
        guard hasContent else { return }
        _ = spoolgate_curl_set_data_function(
            easy,
            CURLOPT_READFUNCTION,
            giveContentForUpstream,
            CURLOPT_READDATA,
            this
        )
        _ = spoolgate_curl_set_seek(easy, restartContentForUpstream, this)
    }
}

private func context(_ pointer: UnsafeMutableRawPointer?) -> CurlContext? {
    pointer.map { Unmanaged<CurlContext>.fromOpaque($0).takeUnretainedValue() }
}

private func openSocketForUpstream(
    _ this: UnsafeMutableRawPointer?,
    _ purpose: curlsocktype,
    _ address: UnsafeMutablePointer<curl_sockaddr>?
) -> curl_socket_t {
    guard let context = context(this), let address, context.attempt?.mayConnect() ?? true else {
        return CURL_SOCKET_BAD
    }
    return context.openSocket(address)
}

private func closeSocketForUpstream(
    _ this: UnsafeMutableRawPointer?,
    _ socket: curl_socket_t
) -> Int32 {
    context(this)?.closeSocket(socket) ?? spoolgate_curl_close(socket)
}

private func beginRequestForUpstream(
    _ this: UnsafeMutableRawPointer?,
    _: UnsafeMutablePointer<CChar>?,
    _: UnsafeMutablePointer<CChar>?,
    _: Int32,
    _: Int32
) -> Int32 {
    guard let attempt = context(this)?.attempt else { return CURL_PREREQFUNC_ABORT }
    return attempt.mayBeginRequest() ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT
}

private func watchProgressForUpstream(
    _ this: UnsafeMutableRawPointer?,
    _: curl_off_t,
    _: curl_off_t,
    _: curl_off_t,
    _ uploaded: curl_off_t
) -> Int32 {
    guard let attempt = context(this)?.attempt else { return 0 }
    return attempt.watchProgress(uploaded: Int64(uploaded)) ? 0 : 1
}

private func takeHeadLineForUpstream(
    _ bytes: UnsafeMutablePointer<CChar>?,
    _ size: Int,
    _ count: Int,
    _ this: UnsafeMutableRawPointer?
) -> Int {
    let line = UnsafeRawBufferPointer(start: bytes, count: size * count)
    guard let attempt = context(this)?.attempt, attempt.takeHeadLine(line) else { return 0 }
    return line.count
}

private func takeContentForUpstream(
    _ bytes: UnsafeMutablePointer<CChar>?,
    _ size: Int,
    _ count: Int,
    _ this: UnsafeMutableRawPointer?
) -> Int {
    let content = UnsafeRawBufferPointer(start: bytes, count: size * count)
    // An empty write says nothing, and 0 is also the right answer to it.
    guard !content.isEmpty, let attempt = context(this)?.attempt, attempt.takeContent(content)
    else { return 0 }
    return content.count
}

private func giveContentForUpstream(
    _ bytes: UnsafeMutablePointer<CChar>?,
    _ size: Int,
    _ count: Int,
    _ this: UnsafeMutableRawPointer?
) -> Int {
    let buffer = UnsafeMutableRawBufferPointer(start: bytes, count: size * count)
    guard let attempt = context(this)?.attempt else { return Int(CURL_READFUNC_ABORT) }
    switch attempt.giveContent(buffer) {
    case .bytes(let count): return count
    case .pause: return Int(CURL_READFUNC_PAUSE)
    case .stop: return Int(CURL_READFUNC_ABORT)
    }
}

private func restartContentForUpstream(
    _ this: UnsafeMutableRawPointer?,
    _ offset: curl_off_t,
    _ origin: Int32
) -> Int32 {
    guard offset == 0, let attempt = context(this)?.attempt, attempt.restartContent() else {
        return CURL_SEEKFUNC_FAIL
    }
    return CURL_SEEKFUNC_OK
}
