// The reason phrases of statuses received without one, because an upstream may omit it (RFC 9112 §4) and HTTP/2 has
// none.

import HTTPTypes

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
