// Response heads as the bytes a web server expects from a FastCGI responder (RFC 3875 §6.3).
//
// Pure. Invariant: no field can end its line early or stand for the status: what could is left out.

import HTTPTypes
import TextFormats
import UploadProtocol

/// Writes heads.
enum ResponseBytes {
    /// Fields that are the web server's or this writer's own: framing, and `Status`, which a web
    /// server would take for the response's.
    private static let reserved = [
        "status", "content-length", "transfer-encoding", "connection", "keep-alive",
    ]

    /// Few heads are longer.
    private static let usualSize = 512

    /// An interim head: the status line comes first, by which a web server knows it.
    ///
    /// Names in lower case: lighttpd (1.4.69) passes them on as they are, into HTTP/2 too.
    static func interim(_ head: ResponseHead) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(usualSize)
        appendStatus(head.status, to: &bytes)
        for field in head.fields { append(field, name: field.name.canonicalName, to: &bytes) }
        bytes.append(literal: "\r\n")
        return bytes
    }

    /// A final head.
    ///
    /// `Location` comes before `Status`: HAProxy below 3.2 makes 302 of a 201 whose `Location`
    /// comes after it. `Status` is always there: without it a `Location` means 302.
    ///
    /// - Parameters:
    ///   - head: the status and the fields.
    ///   - contentLength: the value of `Content-Length`; nil: none is sent, unless the head has one
    ///     and the response has no content by its nature.
    ///   - hasContent: whether content may follow (not for HEAD, 204 and 304).
    /// - Returns: the bytes, with the empty line at their end.
    static func final(_ head: ResponseHead, contentLength: Int64?, hasContent: Bool) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(usualSize)
        let hasLocation = head.fields.contains(.location)
        if hasLocation {
            for field in head.fields where field.name == .location {
                append(field, name: field.name.rawName, to: &bytes)
            }
        }
        appendStatus(head.status, to: &bytes)
        for field in head.fields where !hasLocation || field.name != .location {
            append(field, name: field.name.rawName, to: &bytes)
        }
        // RFC 9110 §8.6: never with 204, and with 304 and HEAD what a GET would have had.
        if head.status.code != 204 {
            let own = hasContent ? nil : head.fields[.contentLength].flatMap { Int64($0) }
            if let length = contentLength ?? own {
                bytes.append(literal: "Content-Length: ")
                bytes.append(decimal: length)
                bytes.append(literal: "\r\n")
            }
        }
        bytes.append(literal: "\r\n")
        return bytes
    }

    private static func appendStatus(_ status: HTTPResponse.Status, to bytes: inout [UInt8]) {
        bytes.append(literal: "Status: ")
        bytes.append(decimal: Int64(status.code))
        var phrase = status.reasonPhrase
        phrase.withUTF8 { phrase in
            guard !phrase.isEmpty, phrase.allSatisfy({ $0 >= 0x20 && $0 != 0x7F }) else { return }
            bytes.append(UInt8(ascii: " "))
            bytes.append(contentsOf: phrase)
        }
        bytes.append(literal: "\r\n")
    }

    private static func append(_ field: HTTPField, name: String, to bytes: inout [UInt8]) {
        let canonical = field.name.canonicalName
        // By its length most names are none of them.
        for other in reserved where other.utf8.count == canonical.utf8.count && other == canonical {
            return
        }
        field.withUnsafeBytesOfValue { value in
            guard !value.contains(where: { $0 == 0x0D || $0 == 0x0A || $0 == 0 }) else { return }
            bytes.append(contentsOf: name.utf8)
            bytes.append(literal: ": ")
            bytes.append(contentsOf: value)
            bytes.append(literal: "\r\n")
        }
    }
}
