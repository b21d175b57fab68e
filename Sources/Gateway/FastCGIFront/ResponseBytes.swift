// Response heads as web servers expect them from a FastCGI responder (RFC 3875 §6.3).
//
// Pure. Invariant: no field can end its line early or be mistaken for the status; such fields are omitted.

import HTTPTypes
import SpoolgateTextFormats
import SpoolgateUploadProtocol

enum ResponseBytes {
    /// Returns an interim head, which begins with the status line, so that web servers recognise it.
    ///
    /// Names are in lower case, because lighttpd (1.4.69) passes them on unchanged, even to HTTP/2.
    static func interim(_ head: ResponseHead) -> ByteBuilder {
        var bytes = ByteBuilder()
        put(head.status, into: &bytes)
        for field in head.fields { put(field, name: field.name.canonicalName, into: &bytes) }
        bytes.put("\r\n")
        return bytes
    }

    /// Returns a final head, including the empty line at its end.
    ///
    /// `Location` precedes `Status` because HAProxy below 3.2 turns a 201 into 302 if `Location` follows. `Status` is
    /// always included, because a `Location` without it means 302.
    ///
    /// If `contentLength` is nil and `hasContent` is false (HEAD, 304), the head's own `Content-Length` is used.
    static func final(_ head: ResponseHead, contentLength: Int64?, hasContent: Bool) -> ByteBuilder
    {
        var bytes = ByteBuilder()
        let hasLocation = head.fields.contains(.location)
        if hasLocation {
            for field in head.fields where field.name == .location {
                put(field, name: field.name.rawName, into: &bytes)
            }
        }
        put(head.status, into: &bytes)
        for field in head.fields where !hasLocation || field.name != .location {
            put(field, name: field.name.rawName, into: &bytes)
        }
        // RFC 9110 §8.6: never with 204; with 304 and HEAD, the value that a GET would have had.
        if head.status.code != 204 {
            let own = hasContent ? nil : head.fields[.contentLength].flatMap { Int64($0) }
            if let length = contentLength ?? own {
                bytes.put("Content-Length: ")
                bytes.put(decimal: length)
                bytes.put("\r\n")
            }
        }
        bytes.put("\r\n")
        return bytes
    }

    private static func put(_ status: HTTPResponse.Status, into bytes: inout ByteBuilder) {
        bytes.put("Status: ")
        bytes.put(decimal: Int64(status.code))
        bytes.put(UInt8(ascii: " "))
        var phrase = status.reasonPhrase
        let isPut = phrase.withUTF8 { phrase in
            guard phrase.allSatisfy({ $0 >= 0x20 && $0 != 0x7F }),
                phrase.contains(where: { $0 > 0x20 })
            else { return false }
            bytes.put(phrase)
            return true
        }
        // nginx removes a trailing space, without which a status line is invalid (RFC 9112 §4).
        if !isPut { bytes.put(text: status.registeredPhrase) }
        bytes.put("\r\n")
    }

    private static func put(
        _ field: HTTPField,
        name: String,
        into bytes: inout ByteBuilder
    ) {
        var canonical = field.name.canonicalName
        guard !canonical.withUTF8({ isReserved($0) }) else { return }
        field.withUnsafeBytesOfValue { value in
            guard !value.contains(where: { $0 == 0x0D || $0 == 0x0A || $0 == 0 }) else { return }
            bytes.put(text: name)
            bytes.put(": ")
            bytes.put(value)
            bytes.put("\r\n")
        }
    }

    /// Whether a field must be omitted: message framing, which is the web server's, or `Status`, which the web server
    /// would take for the response's status.
    private static func isReserved(_ name: UnsafeBufferPointer<UInt8>) -> Bool {
        // The length alone rules out most names.
        switch name.count {
        case 6: name.equals("status")
        case 10: name.equals("connection") || name.equals("keep-alive")
        case 14: name.equals("content-length")
        case 17: name.equals("transfer-encoding")
        default: false
        }
    }
}

// MARK: Reason phrases

// The reason phrases of statuses received without one, because an upstream may omit it (RFC 9112 §4) and HTTP/2 has
// none.

extension HTTPResponse.Status {
    /// The registered phrase of this status; `Unknown` if it is not registered.
    var registeredPhrase: String {
        Self.more[code] ?? Self.named.first { $0.code == code }?.reasonPhrase ?? "Unknown"
    }

    private static let named: [HTTPResponse.Status] = [
        .continue, .switchingProtocols, .earlyHints, .ok, .created, .accepted,
        .nonAuthoritativeInformation, .noContent, .resetContent, .partialContent, .multipleChoices,
        .movedPermanently, .found, .seeOther, .notModified, .temporaryRedirect, .permanentRedirect,
        .badRequest, .unauthorized, .forbidden, .notFound, .methodNotAllowed, .notAcceptable,
        .proxyAuthenticationRequired, .requestTimeout, .conflict, .gone, .lengthRequired,
        .preconditionFailed, .contentTooLarge, .uriTooLong, .unsupportedMediaType,
        .rangeNotSatisfiable, .expectationFailed, .misdirectedRequest, .unprocessableContent,
        .tooEarly, .upgradeRequired, .preconditionRequired, .tooManyRequests,
        .requestHeaderFieldsTooLarge, .unavailableForLegalReasons, .internalServerError,
        .notImplemented, .badGateway, .serviceUnavailable, .gatewayTimeout,
        .httpVersionNotSupported, .networkAuthenticationRequired,
    ]

    /// Phrases that swift-http-types lacks (IANA, HTTP Status Code Registry).
    private static let more: [Int: String] = [
        102: "Processing", 104: "Upload Resumption Supported", 207: "Multi-Status",
        208: "Already Reported", 226: "IM Used", 305: "Use Proxy", 402: "Payment Required",
        423: "Locked", 424: "Failed Dependency", 506: "Variant Also Negotiates",
        507: "Insufficient Storage", 508: "Loop Detected", 510: "Not Extended",
    ]
}
