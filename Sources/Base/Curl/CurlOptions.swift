// Every option of libcurl that is set, once a handle or once a transfer, and nothing else.
//
// libcurl is told to send what the request says and no more: no fields of its own, no redirects, no
// proxies but where they are asked for, no decoding. The invariant: bytes of the URL, of the target and of
// field values reach libcurl as they came; what could not be sent as it is, is refused here.

import CSpoolgateCurl
package import HTTPTypes
import SpoolgatePosix

/// An option libcurl did not take, or a request that cannot be written as HTTP/1.1.
package struct CurlOptionError: Error {
    /// Why, as a part of a sentence.
    package var reason: String
}

/// Where a handle connects to, how long that may take and how it trusts.
package struct CurlEndpoint {
    /// The URL; its path is replaced where a request has a target.
    package var url: String
    /// A unix socket to connect to in place of the URL's host; nil: TCP.
    package var socket: String?
    /// Whether TLS is spoken.
    package var isSecure: Bool
    /// Whether HTTP/2 is offered in the TLS handshake; else HTTP/1.1 alone.
    package var offersHTTP2 = false
    /// Longest time to connect, TLS included.
    package var connectTimeout: Duration
    /// PEM file of the authorities to trust instead of the system's.
    package var certificateAuthority: String?
    /// PEM file of the client certificate; nil: none.
    package var clientCertificate: String?
    /// PEM file of its key; nil: in `clientCertificate`.
    package var clientKey: String?
    /// Whether TLS 1.2 is too old.
    package var wantsNewestTLS = false
    /// Whether the proxies that the environment names are used (`https_proxy`, `no_proxy`).
    package var usesProxies = false

    /// Makes an endpoint of what each one has.
    package init(url: String, socket: String?, isSecure: Bool, connectTimeout: Duration) {
        self.url = url
        self.socket = socket
        self.isSecure = isSecure
        self.connectTimeout = connectTimeout
    }
}

/// How libcurl gets one request's content.
package enum HandedContent {
    /// There is none.
    case none
    /// All of it lies in memory, and not a byte passes through a callback.
    case whole(UnsafeRawBufferPointer)
    /// By callbacks; nil: of unknown length.
    case pieces(length: Int64?)
}

/// Sets the options of one connection's handle.
package struct CurlOptions {
    /// Largest upload buffer; larger ones were not faster.
    private static let largestUploadBuffer = 2 << 20
    /// The same over TLS: what is encrypted must still be in the processor's cache after the read.
    private static let largestSecureUploadBuffer = 512 << 10
    /// Content below this is sent by libcurl in one call with the head, if it is handed over whole
    /// (MAX_INITIAL_POST_SIZE).
    package static let inlineLimit: Int64 = 64 * 1024
    /// What a head and the content behind it need besides the content, for one write of both.
    private static let headRoom = 8 * 1024

    private let connection: CurlConnection
    private var easy: UnsafeMutableRawPointer { connection.easy }

    /// Sets options on `connection`'s handle.
    package init(on connection: CurlConnection) { self.connection = connection }

    // MARK: What holds for every transfer

    /// Where to connect, how long that may take, how to trust, and whom libcurl calls.
    ///
    /// Once a handle: a connection's endpoint does not change.
    package func setEndpoint(_ endpoint: CurlEndpoint) throws(CurlOptionError) {
        try set(CURLOPT_ERRORBUFFER, pointer: connection.errorText)
        try set(CURLOPT_URL, endpoint.url)
        // Taken apart once, not by every transfer. The text stays set besides: 7.88 copies it when it
        // repeats a request, and has none of its own on a handle that was reset.
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
        if let file = endpoint.certificateAuthority {
            try set(CURLOPT_CAINFO, file)
            // The system's directory of authorities would be looked at besides.
            try set(CURLOPT_CAPATH, pointer: nil)
        }
        if let file = endpoint.clientCertificate {
            try set(CURLOPT_SSLCERT, file)
            try set(CURLOPT_SSLKEY, endpoint.clientKey ?? file)
            // Without a passphrase OpenSSL asks for one on the terminal.
            try set(CURLOPT_KEYPASSWD, "")
        }
    }

    // MARK: What one transfer has of its own

    /// The request line, the framing, and whether the kept connection is left unused; the fields are
    /// the connection's lines.
    ///
    /// - Parameters:
    ///   - method: the method; HEAD has no content.
    ///   - target: what stands on the request line; nil: the URL's own path and query.
    ///   - content: how libcurl gets its content; what is whole must stay until the transfer is over.
    ///   - isSecure: whether the endpoint speaks TLS.
    ///   - isNew: whether it goes over a connection of its own.
    /// - Throws: `CurlOptionError` for what cannot be sent as it is.
    package func setRequest(
        _ method: HTTPRequest.Method,
        target: String?,
        content: HandedContent,
        isSecure: Bool,
        isNew: Bool
    ) throws(CurlOptionError) {
        try set(CURLOPT_FRESH_CONNECT, isNew ? 1 : 0)
        if let target { try set(CURLOPT_REQUEST_TARGET, target) }
        // Undoes what the request before has set of these.
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

    /// Ends the transfer once connected, TLS included; nothing is sent.
    package func setConnectingOnly() throws(CurlOptionError) { try set(CURLOPT_CONNECT_ONLY, 1) }

    /// Sends, and receives, at most so many bytes a second on average.
    package func setRateLimit(_ limit: Int64) throws(CurlOptionError) {
        try set(offset: CURLOPT_MAX_SEND_SPEED_LARGE, limit)
        try set(offset: CURLOPT_MAX_RECV_SPEED_LARGE, limit)
    }

    /// How long a 100 (Continue) is waited for.
    package func setContinueTimeout(_ timeout: Duration) throws(CurlOptionError) {
        try set(CURLOPT_EXPECT_100_TIMEOUT_MS, max(1, Int(timeout.wholeMilliseconds)))
    }

    /// Takes user and password of the host from a file like netrc(5).
    package func setCredentials(fromFile path: String) throws(CurlOptionError) {
        try set(CURLOPT_NETRC, spoolgate_curl_netrc_required())
        try set(CURLOPT_NETRC_FILE, path)
    }

    // MARK: One option

    private func set(_ option: CURLoption, _ value: String) throws(CurlOptionError) {
        try check(spoolgate_curl_set_pointer(easy, option, value), option)
    }

    private func set(_ option: CURLoption, _ value: Int) throws(CurlOptionError) {
        try check(spoolgate_curl_set_long(easy, option, value), option)
    }

    /// Sets an option that changes only the speed of a transfer; if libcurl refuses it, its default is used.
    private func prefer(_ option: CURLoption, _ value: Int) {
        _ = spoolgate_curl_set_long(easy, option, value)
    }

    /// Sets an option to memory that libcurl reads, or writes, later on.
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
            reason: "libcurl does not take its option \(option.rawValue): \(text)"
        )
    }
}
