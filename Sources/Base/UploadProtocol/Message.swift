// The messages that the protocol core reads and builds, as values.
//
// The FastCGI listener creates a RequestHead for each request. Streamed content does not pass through here.

package import HTTPTypes

/// The content length that a request message states.
package enum ContentLength: Sendable, Equatable {
    /// The content has exactly this many bytes, possibly zero (RFC 9110 §8.6).
    case known(Int64)
    /// The message is chunked, uses HTTP/2 without a length, or has no content.
    case unknown

    /// The number of bytes; nil if the message does not state it.
    package var count: Int64? {
        guard case .known(let count) = self else { return nil }
        return count
    }
}

/// The head of one request as a client sent it.
package struct RequestHead: Sendable, Equatable {
    /// The method, any token (RFC 9110 §9).
    package var method: HTTPRequest.Method
    /// The target in origin-form (`/path?query`) or `*`, unchanged (RFC 9112 §3.2).
    package var target: String
    /// The field lines as received, their values without surrounding whitespace.
    ///
    /// The client's `Connection` has been applied and is left out. `Content-Length` and `Transfer-Encoding` are left out; see `contentLength`.
    package var fields: HTTPFields
    /// The names of the fields that the authorizer has set or removed.
    ///
    /// `fields` has their values. All other fields come from the client or the web server.
    package var granted: [HTTPField.Name]
    package var contentLength: ContentLength

    /// Creates a head from its parts.
    package init(
        method: HTTPRequest.Method,
        target: String,
        fields: HTTPFields = [:],
        granted: [HTTPField.Name] = [],
        contentLength: ContentLength = .unknown
    ) {
        self.method = method
        self.target = target
        self.fields = fields
        self.granted = granted
        self.contentLength = contentLength
    }

    /// The target without its query.
    package var path: Substring {
        // Compares bytes, because a combining mark would hide the question mark.
        let path = target.utf8.withContiguousStorageIfAvailable { bytes in
            bytes.firstIndex(of: UInt8(ascii: "?")) ?? bytes.count
        }
        let end = path ?? target.utf8.prefix { $0 != UInt8(ascii: "?") }.count
        return target[..<target.utf8.index(target.startIndex, offsetBy: end)]
    }
}

/// The head of one interim or final response.
package struct ResponseHead: Sendable, Equatable {
    package var status: HTTPResponse.Status
    package var fields: HTTPFields

    /// Creates a head from its parts.
    package init(status: HTTPResponse.Status, fields: HTTPFields = [:]) {
        self.status = status
        self.fields = fields
    }
}

/// A complete response of the gateway itself: a head and a small content.
package struct Response: Sendable, Equatable {
    /// The status and the fields; the sender derives `Content-Length` from `content`.
    package var head: ResponseHead
    /// The content, at most a few hundred bytes.
    package var content: [UInt8]

    /// Creates a response from its parts.
    package init(_ head: ResponseHead, content: [UInt8] = []) {
        self.head = head
        self.content = content
    }
}

extension HTTPRequest.Method {
    /// Whether the method only reads (RFC 9110 §9.2.1).
    package var isSafe: Bool { self == .get || self == .head || self == .options || self == .trace }

    /// Whether several identical requests with this method have the same effect as one (RFC 9110 §9.2.2).
    package var isIdempotent: Bool {
        isSafe || self == .put || self == .delete
    }

    /// Whether a request may be sent again if it is unknown whether the first one was processed.
    ///
    /// The result is false for a conditional request that changes something. The first request may have made the
    /// condition false, so that the second one would fail and wrongly report that nothing was done (RFC 9110 §13.1.1,
    /// §13.1.2).
    package func isRepeatable(with fields: HTTPFields) -> Bool {
        guard isIdempotent else { return false }
        return self != .put && self != .delete || !fields.contains { $0.name.isPrecondition }
    }
}

extension HTTPField.Name {
    /// Whether the field makes a request conditional (RFC 9110 §13.1, RFC 4918 §10.4).
    fileprivate var isPrecondition: Bool {
        let name = canonicalName
        guard name.utf8.first == UInt8(ascii: "i") else { return false }
        return ["if-match", "if-none-match", "if-unmodified-since", "if"].contains(name)
    }
}
