// Every option of libcurl that is set, once a handle or once an attempt, and nothing else.
//
// libcurl is told to send what the request says and no more: no fields of its own, no redirects, no
// proxies from the environment, no Expect, no decoding. The invariant: bytes of the target and of
// field values reach libcurl as they came; what could not be sent as it is, is refused here.

import CCurl
import HTTPTypes
import Posix
import UploadProtocol

/// An option libcurl did not take, or a request that cannot be written as HTTP/1.1.
struct CurlOptionError: Error {
    var reason: String
}

/// How libcurl gets one request's content.
enum HandedContent {
    /// There is none.
    case none
    /// All of it lies in memory, and not a byte passes through a callback.
    case whole(UnsafeRawBufferPointer)
    /// By callbacks; nil: of unknown length.
    case pieces(length: Int64?)
}

/// Sets the options of one connection's handle.
struct CurlOptions {
    /// Largest upload buffer; larger ones were not faster.
    static let largestUploadBuffer = 2 << 20
    /// The same over TLS: what is encrypted must still be in the processor's cache after the read.
    static let largestSecureUploadBuffer = 512 << 10
    /// Content below this is sent by libcurl in one call with the head, if it is handed over whole
    /// (MAX_INITIAL_POST_SIZE).
    static let inlineLimit: Int64 = 64 * 1024
    /// What a head and the content behind it need besides the content, for one write of both.
    private static let headRoom = 8 * 1024

    private let connection: CurlConnection
    private var easy: UnsafeMutableRawPointer { connection.easy }

    /// Sets options on `connection`'s handle.
    init(on connection: CurlConnection) { self.connection = connection }

    // MARK: What holds for every attempt

    /// Where to connect, how long that may take, how to trust, and whom libcurl calls.
    ///
    /// Once a handle: a connection's upstream does not change.
    func setUpstream(
        _ location: UpstreamLocation,
        settings: UpstreamSettings
    ) throws(CurlOptionError) {
        try set(CURLOPT_ERRORBUFFER, pointer: connection.errorText)
        try set(CURLOPT_URL, location.url)
        // Taken apart once, not by every attempt. The text stays set besides: 7.88 copies it when it
        // repeats a request, and has none of its own on a handle that was reset.
        if connection.keep(url: location.url) {
            try set(CURLOPT_CURLU, pointer: connection.url.map { UnsafeRawPointer($0) })
        }
        if let socket = location.socket { try set(CURLOPT_UNIX_SOCKET_PATH, socket) }
        try set(CURLOPT_PROTOCOLS_STR, "http,https")
        try set(CURLOPT_PATH_AS_IS, 1)
        try set(CURLOPT_PROXY, "")
        try set(CURLOPT_NOPROXY, "*")
        try set(CURLOPT_NOSIGNAL, 1)
        try set(CURLOPT_NOPROGRESS, 0)
        try set(CURLOPT_TCP_KEEPALIVE, 1)
        try set(CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1)
        try set(CURLOPT_MAXCONNECTS, 1)
        try set(CURLOPT_BUFFERSIZE, 64 * 1024)
        try set(CURLOPT_CONNECTTIMEOUT_MS, max(1, Int(settings.connectTimeout.wholeMilliseconds)))
        if location.isSecure { try setTrust(settings) }
        connection.setCallbacks()
    }

    private func setTrust(_ settings: UpstreamSettings) throws(CurlOptionError) {
        try set(CURLOPT_SSL_VERIFYPEER, 1)
        try set(CURLOPT_SSL_VERIFYHOST, 2)
        try set(CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2)
        if let file = settings.certificateAuthority {
            try set(CURLOPT_CAINFO, file)
            // The system's directory of authorities would be looked at besides.
            try set(CURLOPT_CAPATH, pointer: nil)
        }
        if let file = settings.clientCertificate {
            try set(CURLOPT_SSLCERT, file)
            try set(CURLOPT_SSLKEY, settings.clientKey ?? file)
            // Without a passphrase OpenSSL asks for one on the terminal.
            try set(CURLOPT_KEYPASSWD, "")
        }
    }

    // MARK: What one attempt has of its own

    /// The request line, the framing, and whether the kept connection is left unused; the fields are
    /// the connection's lines.
    ///
    /// - Parameters:
    ///   - request: the request.
    ///   - location: where it goes.
    ///   - content: how libcurl gets its content; what is whole must stay until the transfer is over.
    ///   - isNew: whether it goes over a connection of its own.
    /// - Throws: `CurlOptionError` for what cannot be sent as it is.
    func setRequest(
        _ request: UpstreamRequest,
        location: UpstreamLocation,
        content: HandedContent,
        isNew: Bool
    ) throws(CurlOptionError) {
        guard let target = location.requestTarget(request.target) else {
            throw CurlOptionError(reason: "its request target has spaces or control characters")
        }
        try set(CURLOPT_FRESH_CONNECT, isNew ? 1 : 0)
        try set(CURLOPT_REQUEST_TARGET, target)
        // Undoes what the request before has set of these.
        try set(CURLOPT_HTTPGET, 1)
        if request.method == .head {
            try set(CURLOPT_NOBODY, 1)
            try set(CURLOPT_CUSTOMREQUEST, pointer: nil)
        } else {
            try setContent(content, isSecure: location.isSecure)
            try set(CURLOPT_CUSTOMREQUEST, request.method.rawValue)
        }
        try Self.add(request, location: location, content: content, to: &connection.lines)
    }

    /// The request's fields, which must stay until the transfer is over.
    func setFields(_ lines: UnsafeMutablePointer<curl_slist>?) {
        // libcurl takes any list.
        _ = spoolgate_curl_set_pointer(easy, CURLOPT_HTTPHEADER, lines)
    }

    private func setContent(
        _ content: HandedContent,
        isSecure: Bool
    ) throws(CurlOptionError) {
        let largest = isSecure ? Self.largestSecureUploadBuffer : Self.largestUploadBuffer
        switch content {
        case .none: return
        case .whole(let bytes):
            try set(CURLOPT_POSTFIELDS, pointer: bytes.baseAddress)
            try set(offset: CURLOPT_POSTFIELDSIZE_LARGE, Int64(bytes.count))
            try set(CURLOPT_UPLOAD_BUFFERSIZE, min(largest, bytes.count + 2 * Self.headRoom))
        case .pieces(let length):
            try set(CURLOPT_UPLOAD, 1)
            try set(offset: CURLOPT_INFILESIZE_LARGE, length ?? -1)
            let wanted = length.map { Int(min($0, Int64(largest))) }
            try set(CURLOPT_UPLOAD_BUFFERSIZE, max(16 * 1024, wanted ?? 256 * 1024))
        }
    }

    private static func add(
        _ request: UpstreamRequest,
        location: UpstreamLocation,
        content: HandedContent,
        to lines: inout FieldLines
    ) throws(CurlOptionError) {
        lines.removeAll()
        var host: HTTPField?
        var (hasAccept, hasContentType) = (false, false)
        for field in request.fields {
            let name = field.name.canonicalName
            if ownFields.contains(name) {
                if host == nil, name == "host", !field.value.isEmpty { host = field }
                continue
            }
            hasAccept = hasAccept || name == "accept"
            hasContentType = hasContentType || name == "content-type"
            try lines.add(field)
        }
        try lines.add(host ?? HTTPField(name: .host, value: location.authority))
        if !hasAccept { lines.add("Accept:") }
        switch content {
        case .none:
            // A request without content (RFC 9110 §8.6).
            if [.post, .put, .patch].contains(request.method) {
                lines.add("Content-Length: 0")
            }
        case .whole, .pieces:
            if !hasContentType { lines.add("Content-Type:") }
            lines.add("Expect:")
        }
    }

    private static let ownFields = FieldNameSet([
        "host", "content-length", "transfer-encoding", "expect", "connection", "upgrade",
        "keep-alive", "te",
    ])

    // MARK: One option

    func set(_ option: CURLoption, _ value: String) throws(CurlOptionError) {
        try check(spoolgate_curl_set_pointer(easy, option, value), option)
    }

    func set(_ option: CURLoption, _ value: Int) throws(CurlOptionError) {
        try check(spoolgate_curl_set_long(easy, option, value), option)
    }

    /// Sets an option to memory that libcurl reads, or writes, later on.
    func set(
        _ option: CURLoption,
        pointer: UnsafeRawPointer?
    ) throws(CurlOptionError) {
        try check(spoolgate_curl_set_pointer(easy, option, pointer), option)
    }

    private func set(_ option: CURLoption, _ value: Int32) throws(CurlOptionError) {
        try set(option, Int(value))
    }

    func set(offset option: CURLoption, _ value: Int64) throws(CurlOptionError) {
        try check(spoolgate_curl_set_offset(easy, option, curl_off_t(value)), option)
    }

    private func check(_ code: CURLcode, _ option: CURLoption) throws(CurlOptionError) {
        guard code != CURLE_OK else { return }
        let text = curl_easy_strerror(code).map { String(cString: $0) } ?? "\(code.rawValue)"
        throw CurlOptionError(
            reason: "libcurl does not take its option \(option.rawValue): \(text)"
        )
    }
}
