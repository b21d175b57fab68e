// The names of fields that clients send often, found by the bytes of their parameters.
//
// Pure. Invariant: a name is found here just as it would be made from its bytes.

import HTTPTypes
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// A table from `UPLOAD_OFFSET` to the name `upload-offset`.
struct ClientFieldNames {
    /// What is known of a parameter's name.
    enum Found {
        case name(HTTPField.Name)
        /// A field for which a parameter stands, or that is no matter of ours.
        case replaced
        case unknown
    }

    /// The one table; it never changes.
    static let all = ClientFieldNames()

    private struct Entry {
        let bytes: [UInt8]
        let found: Found
    }

    /// Where an entry's place is taken, it stands in the next one that is free.
    private var entries: [Entry] = []
    /// By place, the number of an entry, counted from 1; 0: none.
    private var places: [UInt8]

    /// Fields that a web server may pass on beside the parameter that stands for them, and the one
    /// that is no matter of ours: the web server has undone the transfer coding.
    private static let replaced = ["content-type", "content-length", "transfer-encoding"]

    private static let usual = [
        "host", "user-agent", "accept", "accept-encoding", "accept-language", "connection",
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
        for text in Self.usual { add(text, .name(.made(text))) }
    }

    private mutating func add(_ text: String, _ found: Found) {
        let bytes = text.utf8.map { $0 == UInt8(ascii: "-") ? UInt8(ascii: "_") : $0 & ~0x20 }
        var place = bytes.withUnsafeBufferPointer { Self.place(of: $0) }
        while places[place] != 0 { place = (place + 1) & 255 }
        entries.append(Entry(bytes: bytes, found: found))
        places[place] = UInt8(entries.count)
    }

    /// Looks up what follows `HTTP_`.
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

    /// FNV-1a, folded to eight bits.
    private static func place(of bytes: ParameterBytes) -> Int {
        var hash: UInt32 = 0x811c_9dc5
        for byte in bytes { hash = (hash ^ UInt32(byte)) &* 0x0100_0193 }
        return Int((hash ^ hash >> 8 ^ hash >> 16) & 255)
    }
}
