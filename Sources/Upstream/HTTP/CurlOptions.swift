// Every option of libcurl that an attempt sets, and nothing else.
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

/// Sets the options of one handle.
///
/// The field list must live until the transfer is over.
struct CurlOptions: ~Copyable {
    /// Largest upload buffer; larger ones were not faster.
    static let largestUploadBuffer = 2 << 20
    /// The same over TLS: what is encrypted must still be in the processor's cache after the read.
    static let largestSecureUploadBuffer = 512 << 10
    /// Content below this is sent by libcurl in one call with the head (MAX_INITIAL_POST_SIZE).
    static let inlineLimit: Int64 = 64 * 1024

    private let easy: UnsafeMutableRawPointer
    private var fieldList: UnsafeMutablePointer<curl_slist>?

    /// Sets options on `connection`'s handle, which has none yet.
    init(on connection: CurlConnection) {
        easy = connection.easy
        _ = spoolgate_curl_set_pointer(easy, CURLOPT_ERRORBUFFER, connection.errorText)
    }

    deinit { curl_slist_free_all(fieldList) }

    /// Where to connect, how long that may take, and how to trust.
    func setUpstream(
        _ location: UpstreamLocation,
        settings: UpstreamSettings
    ) throws(CurlOptionError) {
        try set(CURLOPT_URL, location.url)
        if let socket = location.socket { try set(CURLOPT_UNIX_SOCKET_PATH, socket) }
        try set(CURLOPT_PROTOCOLS_STR, "http,https")
        try set(CURLOPT_PROXY, "")
        try set(CURLOPT_NOPROXY, "*")
        try set(CURLOPT_NOSIGNAL, 1)
        try set(CURLOPT_NOPROGRESS, 0)
        try set(CURLOPT_TCP_KEEPALIVE, 1)
        try set(CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1)
        try set(CURLOPT_MAXCONNECTS, 1)
        try set(CURLOPT_BUFFERSIZE, 64 * 1024)
        try set(CURLOPT_CONNECTTIMEOUT_MS, max(1, Int(settings.connectTimeout.wholeMilliseconds)))
        guard location.isSecure else { return }
        try set(CURLOPT_SSL_VERIFYPEER, 1)
        try set(CURLOPT_SSL_VERIFYHOST, 2)
        try set(CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2)
        if let file = settings.certificateAuthority {
            try set(CURLOPT_CAINFO, file)
            // The system's directory of authorities would be looked at besides.
            try check(spoolgate_curl_set_pointer(easy, CURLOPT_CAPATH, nil), CURLOPT_CAPATH)
        }
        if let file = settings.clientCertificate {
            try set(CURLOPT_SSLCERT, file)
            try set(CURLOPT_SSLKEY, settings.clientKey ?? file)
            // Without a passphrase OpenSSL asks for one on the terminal.
            try set(CURLOPT_KEYPASSWD, "")
        }
    }

    /// Leaves the kept connection unused.
    func setNewConnection() throws(CurlOptionError) { try set(CURLOPT_FRESH_CONNECT, 1) }

    /// The request line, the fields and the framing.
    mutating func setRequest(
        _ request: UpstreamRequest,
        location: UpstreamLocation,
        source: ContentSource?,
        inline: [UInt8]?
    ) throws(CurlOptionError) {
        guard let target = location.requestTarget(request.target) else {
            throw CurlOptionError(reason: "its request target has spaces or control characters")
        }
        try set(CURLOPT_PATH_AS_IS, 1)
        try set(CURLOPT_REQUEST_TARGET, target)
        if request.method == .head {
            try set(CURLOPT_NOBODY, 1)
        } else {
            try setContent(source, inline: inline, isSecure: location.isSecure)
            try set(CURLOPT_CUSTOMREQUEST, request.method.rawValue)
        }
        try addFields(request.fields, location: location)
        // A request without content (RFC 9110 §8.6).
        if source == nil, [.post, .put, .patch].contains(request.method) {
            try add("Content-Length: 0")
        }
        try check(
            spoolgate_curl_set_pointer(easy, CURLOPT_HTTPHEADER, fieldList),
            CURLOPT_HTTPHEADER
        )
    }

    private func setContent(
        _ source: ContentSource?,
        inline: [UInt8]?,
        isSecure: Bool
    ) throws(CurlOptionError) {
        guard let source else {
            try set(CURLOPT_HTTPGET, 1)
            return
        }
        if let inline {
            try set(CURLOPT_POST, 1)
            try set(CURLOPT_UPLOAD_BUFFERSIZE, 2 * Int(Self.inlineLimit))
            try set(offset: CURLOPT_POSTFIELDSIZE_LARGE, Int64(inline.count))
            let code = inline.withUnsafeBytes { bytes in
                spoolgate_curl_set_pointer(easy, CURLOPT_COPYPOSTFIELDS, bytes.baseAddress)
            }
            try check(code, CURLOPT_COPYPOSTFIELDS)
            return
        }
        try set(CURLOPT_UPLOAD, 1)
        try set(offset: CURLOPT_INFILESIZE_LARGE, source.length ?? -1)
        let largest = isSecure ? Self.largestSecureUploadBuffer : Self.largestUploadBuffer
        let wanted = source.length.map { Int(min($0, Int64(largest))) }
        try set(CURLOPT_UPLOAD_BUFFERSIZE, max(16 * 1024, wanted ?? 256 * 1024))
    }

    private mutating func addFields(
        _ fields: HTTPFields,
        location: UpstreamLocation
    ) throws(CurlOptionError) {
        for field in fields where !Self.ownFields.contains(field.name) {
            try add(field)
        }
        let host = fields.first { $0.name == .host && !$0.value.isEmpty }
        if let host { try add(host) } else { try add("Host: \(location.authority)") }
        // A name with nothing after the colon keeps libcurl from sending its own.
        for (name, line) in Self.suppressed where !fields.contains(name) { try add(line) }
        try add("Expect:")
    }

    private static let suppressed: [(HTTPField.Name, String)] = [
        (.accept, "Accept:"), (.userAgent, "User-Agent:"), (.contentType, "Content-Type:"),
    ]
    private static let ownFields: Set<HTTPField.Name> = Set(
        [
            "Host", "Content-Length", "Transfer-Encoding", "Expect", "Connection", "Upgrade",
            "Keep-Alive", "TE",
        ].compactMap { HTTPField.Name($0) }
    )

    /// `Name: value`, or libcurl's `Name;` for an empty value.
    private mutating func add(_ field: HTTPField) throws(CurlOptionError) {
        var line = Array(field.name.rawName.utf8)
        field.withUnsafeBytesOfValue { value in
            if value.isEmpty {
                line.append(UInt8(ascii: ";"))
            } else {
                line += [UInt8(ascii: ":"), UInt8(ascii: " ")]
                line += value
            }
        }
        guard !line.contains(where: { $0 == 0 || $0 == 0x0d || $0 == 0x0a }) else {
            throw CurlOptionError(reason: "its field \(field.name) has a line end or a NUL byte")
        }
        try add(line: line)
    }

    private mutating func add(_ text: String) throws(CurlOptionError) {
        try add(line: Array(text.utf8))
    }

    private mutating func add(line: consuming [UInt8]) throws(CurlOptionError) {
        let list = fieldList
        line.append(0)
        let longer = line.withUnsafeBytes { bytes in
            curl_slist_append(list, bytes.bindMemory(to: CChar.self).baseAddress)
        }
        guard let longer else { throw CurlOptionError(reason: "there is no memory for its fields") }
        fieldList = longer
    }

    // MARK: One option

    func set(_ option: CURLoption, _ value: String) throws(CurlOptionError) {
        try check(spoolgate_curl_set_pointer(easy, option, value), option)
    }

    func set(_ option: CURLoption, _ value: Int) throws(CurlOptionError) {
        try check(spoolgate_curl_set_long(easy, option, value), option)
    }

    private func set(_ option: CURLoption, _ value: Int32) throws(CurlOptionError) {
        try set(option, Int(value))
    }

    private func set(offset option: CURLoption, _ value: Int64) throws(CurlOptionError) {
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
