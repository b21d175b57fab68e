// Sets libcurl's options for each handle or each transfer. No other code sets options.
//
// libcurl adds no fields, follows no redirects, decodes nothing, and uses no proxies unless enabled. Invariant: the
// URL, the target and the field values reach libcurl unchanged, or the request is refused.

import CSpoolgateCurl
package import HTTPTypes
import SpoolgatePosix

/// An option refused by libcurl, or a request that HTTP/1.1 cannot represent.
package struct CurlOptionError: Error {
    /// The reason, as a clause.
    package var reason: String
}

/// The way a handle connects.
package struct CurlEndpoint {
    /// The URL to connect to.
    ///
    /// A request's target replaces its path.
    package var url: String
    /// The path of a Unix socket to use instead of the URL's host, or nil to use TCP.
    package var socket: String?
    package var isSecure: Bool
    /// Whether the TLS handshake offers HTTP/2 next to HTTP/1.1.
    package var offersHTTP2 = false
    /// The maximum time to connect, including TLS.
    package var connectTimeout: Duration
    package var tls = TLSFiles()
    /// Whether TLS 1.3 is required.
    package var wantsNewestTLS = false
    /// Whether to use proxies from the environment (`https_proxy`, `no_proxy`).
    package var usesProxies = false

    /// Creates an endpoint from its required parts.
    package init(url: String, socket: String?, isSecure: Bool, connectTimeout: Duration) {
        self.url = url
        self.socket = socket
        self.isSecure = isSecure
        self.connectTimeout = connectTimeout
    }
}

/// The PEM files for connections by TLS.
package struct TLSFiles: Sendable, Equatable {
    /// The trusted authorities, or nil to trust the system's.
    package var authorities: String?
    /// The client certificate, or nil to send none.
    package var certificate: String?
    /// The client certificate's key, or nil if `certificate` contains the key.
    package var key: String?

    /// Names no files.
    package init() {}
}

/// The way libcurl gets a request's content.
package enum HandedContent {
    case none
    /// Complete content; libcurl calls no callbacks for this.
    case whole(UnsafeRawBufferPointer)
    /// Content that libcurl gets by calling `giveContent` for each piece; `length` is in bytes, or nil if unknown.
    case pieces(length: Int64?)
}

/// Sets the options of one connection's handle.
package struct CurlOptions {
    /// The maximum size in bytes of libcurl's upload buffer.
    ///
    /// Larger buffers were not faster.
    private static let largestUploadBuffer = 2 << 20
    /// The same limit with TLS, so small that content is encrypted while in the processor's cache.
    private static let largestSecureUploadBuffer = 512 << 10
    /// The size in bytes below which libcurl sends content in one call with the head (MAX_INITIAL_POST_SIZE).
    package static let inlineLimit: Int64 = 64 * 1024
    /// The buffer's space for a head in bytes, so that one write sends both head and content.
    private static let headRoom = 8 * 1024

    private let connection: CurlConnection
    private var easy: UnsafeMutableRawPointer { connection.easy }

    /// Sets options on `connection`'s handle.
    package init(on connection: CurlConnection) { self.connection = connection }

    // MARK: Options for all transfers

    /// Sets the address, the timeout, the certificates and the callbacks.
    ///
    /// Call it once for each handle, because a connection's endpoint never changes.
    package func setEndpoint(_ endpoint: CurlEndpoint) throws(CurlOptionError) {
        try set(CURLOPT_ERRORBUFFER, pointer: connection.errorText)
        try set(CURLOPT_URL, endpoint.url)
        // Parsed once, not by every transfer. The text is still set, because libcurl 7.88 copies the text to repeat a
        // request, and a reset handle has no text.
        if connection.keep(url: endpoint.url) {
            try set(CURLOPT_CURLU, pointer: connection.url.map { UnsafeRawPointer($0) })
        }
        if let socket = endpoint.socket { try set(CURLOPT_UNIX_SOCKET_PATH, socket) }
        try set(CURLOPT_PROTOCOLS_STR, "http,https")
        try set(CURLOPT_PATH_AS_IS, 1)
        if !endpoint.usesProxies {
            try set(CURLOPT_PROXY, "")
            try set(CURLOPT_NOPROXY, "*")
        }
        try set(CURLOPT_NOSIGNAL, 1)
        try set(CURLOPT_NOPROGRESS, 0)
        prefer(CURLOPT_TCP_KEEPALIVE, 1)
        try set(
            CURLOPT_HTTP_VERSION,
            Int(endpoint.offersHTTP2 ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1)
        )
        try set(CURLOPT_MAXCONNECTS, 1)
        prefer(CURLOPT_BUFFERSIZE, 64 * 1024)
        try set(CURLOPT_CONNECTTIMEOUT_MS, max(1, Int(endpoint.connectTimeout.wholeMilliseconds)))
        if endpoint.isSecure { try setTrust(endpoint) }
        connection.setCallbacks()
    }

    private func setTrust(_ endpoint: CurlEndpoint) throws(CurlOptionError) {
        try set(CURLOPT_SSL_VERIFYPEER, 1)
        try set(CURLOPT_SSL_VERIFYHOST, 2)
        let least = endpoint.wantsNewestTLS ? CURL_SSLVERSION_TLSv1_3 : CURL_SSLVERSION_TLSv1_2
        try set(CURLOPT_SSLVERSION, Int(least))
        if let file = endpoint.tls.authorities { try set(CURLOPT_CAINFO, file) }
        // The system's directory would also be trusted. Without it, libcurl keeps the parsed file for the handle's next
        // connections; to parse the system's authorities again takes 40 ms.
        if endpoint.tls.authorities != nil || spoolgate_curl_authorities(easy) != nil {
            try set(CURLOPT_CAPATH, pointer: nil)
        }
        if let file = endpoint.tls.certificate {
            try set(CURLOPT_SSLCERT, file)
            try set(CURLOPT_SSLKEY, endpoint.tls.key ?? file)
            // Without a passphrase, OpenSSL prompts on the terminal.
            try set(CURLOPT_KEYPASSWD, "")
        }
    }

    // MARK: Options for one transfer

    /// Sets the request line, the framing, and whether to avoid the kept connection.
    ///
    /// The connection's `lines` supply the fields. If `target` is nil, the URL's own path and query are the target.
    /// HEAD has no content. Whole content must stay in memory until the transfer ends.
    ///
    /// - Throws: `CurlOptionError` if the request cannot be sent unchanged.
    package func setRequest(
        _ method: HTTPRequest.Method,
        target: String?,
        content: HandedContent,
        isSecure: Bool,
        isNew: Bool
    ) throws(CurlOptionError) {
        try set(CURLOPT_FRESH_CONNECT, isNew ? 1 : 0)
        if let target { try set(CURLOPT_REQUEST_TARGET, target) }
        // Resets these options after the previous request.
        try set(CURLOPT_HTTPGET, 1)
        if method == .head {
            try set(CURLOPT_NOBODY, 1)
            try set(CURLOPT_CUSTOMREQUEST, pointer: nil)
        } else {
            try setContent(content, isSecure: isSecure)
            try set(CURLOPT_CUSTOMREQUEST, method.rawValue)
        }
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
            prefer(CURLOPT_UPLOAD_BUFFERSIZE, min(largest, bytes.count + 2 * Self.headRoom))
        case .pieces(let length):
            try set(CURLOPT_UPLOAD, 1)
            try set(offset: CURLOPT_INFILESIZE_LARGE, length ?? -1)
            let wanted = length.map { Int(min($0, Int64(largest))) }
            prefer(CURLOPT_UPLOAD_BUFFERSIZE, max(16 * 1024, wanted ?? 256 * 1024))
        }
    }

    /// Makes the transfer end after connecting, including TLS, without sending a request.
    package func setConnectingOnly() throws(CurlOptionError) { try set(CURLOPT_CONNECT_ONLY, 1) }

    /// Limits sending and receiving to an average of `limit` bytes per second.
    package func setRateLimit(_ limit: Int64) throws(CurlOptionError) {
        try set(offset: CURLOPT_MAX_SEND_SPEED_LARGE, limit)
        try set(offset: CURLOPT_MAX_RECV_SPEED_LARGE, limit)
    }

    /// Sets how long to wait for a 100 (Continue).
    package func setContinueTimeout(_ timeout: Duration) throws(CurlOptionError) {
        try set(CURLOPT_EXPECT_100_TIMEOUT_MS, max(1, Int(timeout.wholeMilliseconds)))
    }

    /// Reads the host's user and password from a file in the format of netrc(5).
    package func setCredentials(fromFile path: String) throws(CurlOptionError) {
        try set(CURLOPT_NETRC, spoolgate_curl_netrc_required())
        try set(CURLOPT_NETRC_FILE, path)
    }

    // MARK: Single options

    private func set(_ option: CURLoption, _ value: String) throws(CurlOptionError) {
        try check(spoolgate_curl_set_pointer(easy, option, value), option)
    }

    private func set(_ option: CURLoption, _ value: Int) throws(CurlOptionError) {
        try check(spoolgate_curl_set_long(easy, option, value), option)
    }

    /// Sets an option that only affects speed.
    ///
    /// If libcurl refuses the value, the default applies.
    private func prefer(_ option: CURLoption, _ value: Int) {
        _ = spoolgate_curl_set_long(easy, option, value)
    }

    /// Sets an option to memory that libcurl uses later.
    private func set(
        _ option: CURLoption,
        pointer: UnsafeRawPointer?
    ) throws(CurlOptionError) {
        try check(spoolgate_curl_set_pointer(easy, option, pointer), option)
    }

    private func set(offset option: CURLoption, _ value: Int64) throws(CurlOptionError) {
        try check(spoolgate_curl_set_offset(easy, option, curl_off_t(value)), option)
    }

    private func check(_ code: CURLcode, _ option: CURLoption) throws(CurlOptionError) {
        guard code != CURLE_OK else { return }
        let text = CurlEnd(code).description
        throw CurlOptionError(
            reason: "libcurl rejected option \(option.rawValue): \(text)"
        )
    }
}
