// A table of the field names that clients send often.
//
// Pure. Invariant: the table returns the name that would be created from the bytes.

import HTTPTypes
import SpoolgateTextFormats
import SpoolgateUploadProtocol

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
