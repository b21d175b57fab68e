// The messages the protocol core reads and writes, as values.
//
// A front turns what it received into a RequestHead; the core answers with ResponseHeads and, for
// answers of its own, small whole Responses. No content passes through here.

package import HTTPTypes

/// How much content a request message says it has.
package enum ContentLength: Sendable, Equatable {
    /// The message's content is exactly this many bytes, zero included (RFC 9110 §8.6).
    case known(Int64)
    /// The message does not say: chunked, HTTP/2 without a length, or no content at all.
    case unknown

    /// The number of bytes, where the message says it.
    package var count: Int64? {
        guard case .known(let count) = self else { return nil }
        return count
    }
}

/// The head of one request as a client sent it.
package struct RequestHead: Sendable, Equatable {
    /// The method, any token (RFC 9110 §9).
    package var method: HTTPRequest.Method
    /// The request target in origin-form (`/path?query`) or `*`, bytes as sent (RFC 9112 §3.2).
    package var target: String
    /// Every field line in the order received, one entry a line, values without outer whitespace.
    ///
    /// `Content-Length` and `Transfer-Encoding` are absent: `contentLength` stands for both.
    package var fields: HTTPFields
    /// How long the content is.
    package var contentLength: ContentLength

    /// Makes a head from its parts.
    package init(
        method: HTTPRequest.Method,
        target: String,
        fields: HTTPFields = [:],
        contentLength: ContentLength = .unknown
    ) {
        self.method = method
        self.target = target
        self.fields = fields
        self.contentLength = contentLength
    }

    /// The target up to its query, bytes as sent.
    package var path: Substring {
        // Bytes, not characters: a combining mark would hide the question mark.
        let path = target.utf8.withContiguousStorageIfAvailable { bytes in
            bytes.firstIndex(of: UInt8(ascii: "?")) ?? bytes.count
        }
        let end = path ?? target.utf8.prefix { $0 != UInt8(ascii: "?") }.count
        return target[..<target.utf8.index(target.startIndex, offsetBy: end)]
    }
}

/// The head of one response, interim or final.
package struct ResponseHead: Sendable, Equatable {
    /// The status (RFC 9110 §15).
    package var status: HTTPResponse.Status
    /// The fields, in the order they are to be sent.
    package var fields: HTTPFields

    /// Makes a head from its parts.
    package init(status: HTTPResponse.Status, fields: HTTPFields = [:]) {
        self.status = status
        self.fields = fields
    }
}

/// One whole answer of the gateway's own: a head and a small content.
package struct Response: Sendable, Equatable {
    /// Status and fields; no `Content-Length`, the sender derives it from `content`.
    package var head: ResponseHead
    /// The content, a few hundred bytes at most.
    package var content: [UInt8]

    /// Makes a response from its parts.
    package init(_ head: ResponseHead, content: [UInt8] = []) {
        self.head = head
        self.content = content
    }
}

extension HTTPRequest.Method {
    /// Whether repeating the request has the same effect as one (RFC 9110 §9.2.2).
    package var isIdempotent: Bool {
        self == .get || self == .head || self == .options || self == .trace || self == .put
            || self == .delete
    }

    /// Whether a request may be sent again if nobody knows whether it was carried out.
    ///
    /// Not a conditional one that changes something: the first request may have made its condition false, so that the
    /// second one fails and says that nothing was done (RFC 9110 §13.1.1, §13.1.2).
    ///
    /// - Parameter fields: the request's.
    /// - Returns: whether a second request can do no harm.
    package func isRepeatable(with fields: HTTPFields) -> Bool {
        guard isIdempotent else { return false }
        return self != .put && self != .delete || !fields.contains { $0.name.isPrecondition }
    }
}

extension HTTPField.Name {
    /// Whether a field makes a request that changes something conditional (RFC 9110 §13.1, RFC 4918 §10.4).
    fileprivate var isPrecondition: Bool {
        let name = canonicalName
        guard name.utf8.first == UInt8(ascii: "i") else { return false }
        return ["if-match", "if-none-match", "if-unmodified-since", "if"].contains(name)
    }
}
