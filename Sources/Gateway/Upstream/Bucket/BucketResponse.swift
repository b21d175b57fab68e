// A store's response to one request, and the outcome if the response is an error.
//
// Invariant: no response of a store becomes a client's final response, because errors of the key, the bucket or the
// quota concern only the operator.

import HTTPTypes
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// The error that an object was not stored.
struct NotStored: Error {
    let outcome: AttemptOutcome
}

/// Receives the response to one request, with its content up to a cap.
///
/// Not thread-safe.
final class BucketResponse: ResponseSink {
    private(set) var head: ResponseHead?
    private(set) var contentLength: Int64?
    private var content: [UInt8] = []
    private let meanwhile: () -> Void
    /// The maximum number of bytes kept of a response.
    private static let cap = 64 << 10

    init(meanwhile: @escaping () -> Void) { self.meanwhile = meanwhile }

    func onProgress() { meanwhile() }

    func receive(interim head: ResponseHead) {}

    func receive(head: ResponseHead, contentLength: Int64?) {
        self.head = head
        self.contentLength = contentLength
    }

    func receive(content part: RawSpan) {
        part.withUnsafeBytes { content += $0.prefix(Self.cap - content.count) }
    }

    var status: Int { head?.status.code ?? 0 }

    /// Whether the request succeeded; a response with status 200 may contain an error (CompleteMultipartUpload).
    var isDone: Bool { (200..<300).contains(status) && error == nil }

    var mayBeRepeated: Bool {
        [429, 500, 502, 503, 504].contains(status)
            || ["SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout"].contains(error)
    }

    var retryAfter: Int? { head?.fields[.retryAfter].flatMap { Int(digits: $0) } }

    /// The text of the first XML element with this name; nil if it is missing or not plain text.
    func element(_ name: String) -> String? {
        let text = String(decoding: content, as: UTF8.self)
        guard let start = text.firstRange(of: "<\(name)>")?.upperBound,
            let end = text[start...].firstIndex(of: "<"), text[end...].hasPrefix("</\(name)>")
        else { return nil }
        let found = text[start..<end]
        return found.isEmpty || found.contains("&") ? nil : String(found)
    }

    /// The code in an error document; nil if the response is not an error document.
    var error: String? {
        guard String(decoding: content, as: UTF8.self).contains("<Error") else { return nil }
        return element("Code").flatMap { code in
            code.utf8.allSatisfy { $0.isUnreserved } ? String(code.prefix(64)) : nil
        } ?? "an error without a code"
    }

    /// The error for a failed request; its reason begins with `purpose`.
    func refusal(_ purpose: String) -> NotStored {
        let code = error
        let reason =
            "\(purpose): the store responded with \(status)\(code.map { " (\($0))" } ?? "")"
        if status == 507 || code == "QuotaExceeded" {
            return NotStored(outcome: .noRoom(reason: "\(reason); raise the bucket's quota"))
        }
        return NotStored(
            outcome: .deferred(reason: reason + Self.hint(status, code), retryAfter: retryAfter)
        )
    }

    private static func hint(_ status: Int, _ code: String?) -> String {
        switch (code, status) {
        case ("SignatureDoesNotMatch", _), ("InvalidAccessKeyId", _),
            ("AuthorizationHeaderMalformed", _), ("InvalidToken", _), ("ExpiredToken", _):
            "; check the key in s3.credentials and s3.region"
        case ("RequestTimeTooSkewed", _): "; set this machine's clock"
        case ("NoSuchBucket", _): "; create the bucket, or correct its name in upstream"
        case ("NotImplemented", _), (_, 501):
            "; check that this store supports If-None-Match with PUT"
        case (_, 300..<400): "; set upstream and s3.region to the region of the bucket"
        case (_, 403): "; check that the key in s3.credentials may put objects there"
        default: ""
        }
    }
}
