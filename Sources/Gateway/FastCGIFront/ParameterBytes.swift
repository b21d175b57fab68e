// Operations on a parameter's bytes that create no string, since a request has dozens of parameters.
//
// Pure.

import Glibc
import HTTPTypes
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// The name or value of a parameter, in libfcgi's memory.
package typealias ParameterBytes = UnsafeBufferPointer<UInt8>

extension ParameterBytes {
    func has(_ byte: UInt8) -> Bool {
        guard let baseAddress, !isEmpty else { return false }
        return memchr(baseAddress, Int32(byte), count) != nil
    }

    func hasSuffix(_ text: StaticString) -> Bool {
        ParameterBytes(rebasing: suffix(text.utf8CodeUnitCount)).equals(text)
    }

    /// The bytes without outer spaces and tabs (OWS, RFC 9110 §5.6.3).
    var trimmed: ParameterBytes { ParameterBytes(rebasing: withoutOuterWhitespace) }

    /// The bytes as text, with invalid UTF-8 repaired.
    var text: String { String(decoding: self, as: UTF8.self) }

    var validText: String? {
        // Nearly all values are ASCII, which needs no costly validation.
        isASCII ? text : String(validating: self, as: UTF8.self)
    }

    var isASCII: Bool {
        var all: UInt8 = 0
        for byte in self { all |= byte }
        return all < 0x80
    }
}

extension StaticString {
    /// Matches a parameter's name in a `switch`.
    @inline(__always) static func ~= (pattern: StaticString, bytes: ParameterBytes) -> Bool {
        bytes.equals(pattern)
    }
}

// MARK: Names of fields

// A table of the field names that clients send often.
//
// Pure. Invariant: the table returns the name that would be created from the bytes.

/// A hash table from names such as `UPLOAD_OFFSET` to field names such as `upload-offset`.
struct ClientFieldNames {
    enum Found {
        case name(HTTPField.Name)
        /// `Connection`, which is applied instead of becoming a field.
        case connection
        /// A field that is ignored, or that another parameter replaces.
        case replaced
        case unknown
    }

    static let all = ClientFieldNames()

    private struct Entry {
        let bytes: [UInt8]
        let found: Found
    }

    private var entries: [Entry] = []
    /// The numbers of the entries, from 1, indexed by hash.
    ///
    /// 0 marks a free place; a collision uses the next one.
    private var places: [UInt8]

    /// Fields that other parameters replace, and `Transfer-Encoding`, because the web server has decoded the content.
    private static let replaced = ["content-type", "content-length", "transfer-encoding"]

    private static let usual = [
        "host", "user-agent", "accept", "accept-encoding", "accept-language",
        "upload-draft-interop-version", "upload-complete", "upload-offset", "upload-length",
        "upload-limit", "upload-incomplete", "tus-resumable", "upload-metadata",
        "upload-defer-length", "upload-concat", "upload-checksum", "x-http-method-override",
        "repr-digest", "content-digest", "want-repr-digest", "want-content-digest", "digest",
        "idempotency-key", "prefer", "expect", "range", "if-match", "if-none-match", "if-range",
        "if-modified-since", "if-unmodified-since", "cache-control", "pragma", "priority", "te",
        "authorization", "cookie", "origin", "referer", "content-disposition", "content-encoding",
        "content-language", "content-location", "content-range", "date", "via", "forwarded",
        "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-real-ip", "x-request-id",
        "x-requested-with", "x-csrf-token", "traceparent", "tracestate", "sec-fetch-site",
        "sec-fetch-mode", "sec-fetch-dest", "sec-fetch-user", "sec-ch-ua", "sec-ch-ua-mobile",
        "sec-ch-ua-platform", "upgrade-insecure-requests", "access-control-request-method",
        "access-control-request-headers", "dnt", "keep-alive", "last-modified", "link",
    ]

    private init() {
        places = Array(repeating: 0, count: 256)
        for text in Self.replaced { add(text, .replaced) }
        add("connection", .connection)
        for text in Self.usual { add(text, .name(.made(text))) }
    }

    private mutating func add(_ text: String, _ found: Found) {
        let bytes = text.utf8.map { $0 == UInt8(ascii: "-") ? UInt8(ascii: "_") : $0 & ~0x20 }
        var place = bytes.withUnsafeBufferPointer { Self.place(of: $0) }
        while places[place] != 0 { place = (place + 1) & 255 }
        entries.append(Entry(bytes: bytes, found: found))
        places[place] = UInt8(entries.count)
    }

    /// Looks up the part of a parameter's name after `HTTP_`.
    func find(_ bytes: ParameterBytes) -> Found {
        var place = Self.place(of: bytes)
        while places[place] != 0 {
            let index = Int(places[place]) - 1
            if entries[index].bytes.withUnsafeBufferPointer({ $0.equals(bytes) }) {
                return entries[index].found
            }
            place = (place + 1) & 255
        }
        return .unknown
    }

    /// Returns the FNV-1a hash, folded to eight bits.
    private static func place(of bytes: ParameterBytes) -> Int {
        var hash: UInt32 = 0x811c_9dc5
        for byte in bytes { hash = (hash ^ UInt32(byte)) &* 0x0100_0193 }
        return Int((hash ^ hash >> 8 ^ hash >> 16) & 255)
    }
}

// MARK: The public origin

// Parses the public origin from the web server strictly, since parts of it may come from a client.
//
// Pure. Invariant: a result can be used unchanged in a URI, in `Host` and in `Forwarded`.

enum PublicOrigin {
    /// Returns `scheme://host[:port]`, without a default port.
    ///
    /// Returns nil for any other text, such as an origin with a path.
    static func normalised(_ bytes: ParameterBytes) -> String? {
        let isSecure = bytes.hasPrefix("https://")
        guard isSecure || bytes.hasPrefix("http://") else { return nil }
        let schemeCount = isSecure ? 8 : 7
        let (host, port) = ParameterBytes(rebasing: bytes[schemeCount...]).hostAndPort
        let isHost = !host.isEmpty && host.allSatisfy { $0.isUnreserved } || host.isBracketedAddress
        let number = port.flatMap { UInt16(digits: $0) } ?? 0
        let isWithout = port?.isEmpty ?? true
        guard isHost, isWithout || number > 0 && port?.count ?? 0 <= 5 else { return nil }
        let isUsual = isWithout || number == (isSecure ? 443 : 80)
        return isUsual
            ? String(decoding: bytes[..<(schemeCount + host.count)], as: UTF8.self) : bytes.text
    }
}
