// What the gateway needs of fields in addition to swift-http-types.
//
// Pure.

package import HTTPTypes
import SpoolgateTextFormats

extension HTTPFields {
    /// Returns the value of a field, with all its lines joined, or nil if the field is missing.
    ///
    /// Equivalent to the subscript of `HTTPFields`, but ten times as fast for a field with a single line.
    package func value(of name: HTTPField.Name) -> String? {
        var found: Int?
        for index in indices where self[index].name == name {
            guard found == nil else { return self[name] }
            found = index
        }
        return found.map { self[$0].value }
    }
}

// MARK: Names

// The names of the fields that the gateway reads, writes or removes, created once.
//
// Names of swift-http-types are not repeated. Invariant: every name is a valid token.

extension HTTPField.Name {
    /// `Upload-Draft-Interop-Version`, an Integer (draft-12 Appendix B).
    package static let uploadDraftInteropVersion = made("Upload-Draft-Interop-Version")
    /// `Upload-Complete`, a Boolean (draft-12 §4.1.2).
    package static let uploadComplete = made("Upload-Complete")
    /// `Upload-Incomplete`, a Boolean, the inverse of `Upload-Complete` (draft-01 §3).
    package static let uploadIncomplete = made("Upload-Incomplete")
    /// `Upload-Offset`, an Integer (draft-12 §4.1.1).
    package static let uploadOffset = made("Upload-Offset")
    /// `Upload-Length`, an Integer (draft-12 §4.1.3).
    package static let uploadLength = made("Upload-Length")
    /// `Upload-Limit`, a Dictionary of Integers (draft-12 §4.1.4).
    package static let uploadLimit = made("Upload-Limit")
    /// `Incremental`, a Boolean (RFC 10036 §3).
    package static let incremental = made("Incremental")
    /// `Link` (RFC 8288 §3).
    package static let link = made("Link")
    /// `Accept-Patch` (RFC 5789 §3.1).
    package static let acceptPatch = made("Accept-Patch")
    /// `X-HTTP-Method-Override`, for clients that cannot send PATCH.
    package static let methodOverride = made("X-HTTP-Method-Override")

    /// `Idempotency-Key`, which lets a server recognise a repeated request.
    package static let idempotencyKey = made("idempotency-key")
    /// `Destination`, the target of MOVE and COPY (RFC 4918 §10.3).
    package static let destination = made("Destination")
    /// `Host`, in which a head states the host (RFC 9110 §7.2).
    package static let host = made("Host")

    /// Creates a name from a token; traps if the token is invalid.
    package static func made(_ text: String) -> HTTPField.Name {
        guard let name = HTTPField.Name(text) else {
            preconditionFailure("\(text) is not a field name")
        }
        return name
    }
}

// MARK: Lines

// Parses a field as people write it: a name, a colon, a value.

extension HTTPField {
    /// Parses `Name: value`; nil if the text is not a valid field (RFC 9110 §5.5) or contains a line break.
    package init?(line: String) {
        let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2, let name = Name(String(parts[0])) else { return nil }
        let value = String(parts[1].withoutOuterWhitespace)
        guard HTTPField.isValidValue(value) else { return nil }
        self.init(name: name, value: value)
    }
}

// MARK: Fields of a connection

// The options of `Connection`: names of fields that end at the next recipient (RFC 9110 §7.6.1).
//
// Pure. Invariant: they apply once, when a message is read, so that they remove no field that is added later.

extension HTTPFields {
    /// Removes `Connection` and the fields that it names.
    package mutating func applyConnection() {
        guard contains(where: { $0.name == .connection }) else { return }
        let options = filter { $0.name == .connection }.map(\.value)
        removeAll { $0.name == .connection }
        removeFields(namedBy: options)
    }

    /// Removes the fields that `options`, the values of `Connection`, name.
    ///
    /// The first `count` fields, and all others with their names, are kept, and so are the fields that no client may
    /// hide from the gateway or the upstream.
    package mutating func removeFields(namedBy options: [String], exceptFirst count: Int = 0) {
        var named: Set<String> = []
        // These two common values name no field.
        for value in options where value != "keep-alive" && value != "close" {
            // Split by bytes, because a combining mark would hide a comma, and the Kelvin sign is not a k.
            for option in value.utf8.split(separator: UInt8(ascii: ",")) {
                let text = String(decoding: option.withoutOuterWhitespace, as: UTF8.self)
                guard let name = HTTPField.Name(text)?.canonicalName, !Self.isEndToEnd(name) else {
                    continue
                }
                named.insert(name)
            }
        }
        guard !named.isEmpty else { return }
        for field in prefix(count) { named.remove(field.name.canonicalName) }
        removeAll { named.contains($0.name.canonicalName) }
    }

    private static func isEndToEnd(_ name: String) -> Bool {
        endToEndNames.contains(name) || name.utf8.starts(with: "upload-".utf8)
            || name.utf8.starts(with: "tus-".utf8)
    }

    /// The fields of routing, credentials, representations, forwarding and the upload protocols.
    private static let endToEndNames: Set<String> = [
        "host", "authorization", "cookie", "content-type", "content-encoding", "content-range",
        "cache-control", "expect", "forwarded", "incremental", "via", "x-forwarded-for",
        "x-forwarded-host", "x-forwarded-proto", "x-http-method-override", "x-real-ip",
    ]
}

extension HTTPField.Name {
    /// The name as CGI and many applications read it: without the difference between `_` and `-`.
    package var folded: String {
        let name = canonicalName
        guard name.utf8.contains(UInt8(ascii: "_")) else { return name }
        return String(
            decoding: name.utf8.map { $0 == UInt8(ascii: "_") ? UInt8(ascii: "-") : $0 },
            as: UTF8.self
        )
    }
}

// MARK: Partial content

// `Content-Range` of requests, which makes the content a part of a representation (RFC 9110 §14.4, §14.5).
//
// Pure. The unit is ignored. Invariant: an unreadable value still makes the content a part.

/// The part of a representation that a request contains.
package struct ContentRange: Sendable, Equatable {
    /// The length of the whole representation in bytes; nil if not stated.
    ///
    /// The length is the larger of the number after the slash and the end of the part; at most `Int64.max`.
    package var length: Int64?

    /// Parses a field value; the largest of several lengths is used.
    init(_ value: String) {
        for part in value.utf8.split(separator: UInt8(ascii: ",")) {
            let sides = part.split(
                separator: UInt8(ascii: "/"),
                maxSplits: 1,
                omittingEmptySubsequences: false
            )
            let last = sides[0].split(separator: UInt8(ascii: "-")).last.flatMap(Self.number)
            let end = last.map { $0 == .max ? $0 : $0 + 1 }
            let total = sides.count > 1 ? Self.number(sides[1]) : nil
            length = [length, end, total].compactMap { $0 }.max()
        }
    }

    private static func number(_ bytes: Substring.UTF8View) -> Int64? {
        let digits = bytes.withoutOuterWhitespace
        guard !digits.isEmpty, digits.allSatisfy(\.isDigit) else { return nil }
        return Int64(String(decoding: digits, as: UTF8.self)) ?? .max
    }
}

extension HTTPFields {
    /// The request's `Content-Range`; nil if the field is missing, which means that the content is not partial.
    package var contentRange: ContentRange? {
        // The values of several lines are joined into one list.
        contains(.contentRange) ? self[.contentRange].map { ContentRange($0) } : nil
    }
}

// MARK: The size of a head

// Limits a response's head to a size that web servers can relay.
//
// nginx reads the head into one buffer (fastcgi_buffer_size, 64 KiB as shipped). If the head does not fit, the client
// receives 502 and never learns that its upload was accepted. Invariant: `fitting` always fits.

extension ResponseHead {
    /// The maximum size in bytes: 64 KiB less room for FastCGI framing and the gateway's own fields.
    package static let maximumFieldBytes = 60 << 10
    /// The maximum size in bytes of one relayed field if all fields together are too large.
    private static let maximumFieldSize = 4 << 10

    /// The size of the field lines in bytes.
    package var fieldBytes: Int { fields.reduce(0) { $0 + $1.lineBytes } }

    /// The head, reduced to fields that describe the response and its content if not all fields fit.
    package var fitting: ResponseHead {
        guard fieldBytes > Self.maximumFieldBytes else { return self }
        var head = self
        head.fields = [:]
        for field in fields where Self.kept.contains(field.name) {
            guard field.lineBytes <= Self.maximumFieldSize, head.fields[field.name] == nil else {
                continue
            }
            head.fields.append(field)
        }
        return head
    }

    // Each field occurs at most once with at most `maximumFieldSize` bytes, so that the total stays below `maximumFieldBytes`.
    private static let kept: Set<HTTPField.Name> = [
        .contentType, .contentEncoding, .contentLanguage, .contentDisposition, .contentRange,
        .location,
        .eTag, .lastModified, .cacheControl, .retryAfter, .allow, .wwwAuthenticate, .reprDigest,
    ]
}

extension HTTPField {
    fileprivate var lineBytes: Int {
        name.rawName.utf8.count + withUnsafeBytesOfValue { $0.count } + 4
    }
}

// MARK: The gateway's name

// The name of a running gateway in `Via`, which detects request loops.
//
// Invariant: gateways have different names even if they share a spool, so that one may be the other's upstream.

/// The pseudonym of one gateway for the lifetime of its process (RFC 9110 §7.6.3).
///
/// Immutable and thread-safe.
package final class GatewayName: Sendable {
    /// The field that is added to each request that the gateway sends.
    package let via: HTTPField
    private let text: String

    /// Creates a name; `token` must consist of letters and digits and be unique to this gateway.
    package init(token: String) {
        text = "spoolgate-\(token)"
        via = HTTPField(name: .via, value: "1.1 \(text)")
    }

    /// Whether `Via` shows that a request has already passed through this gateway, possibly in another form.
    package func isNamed(in fields: HTTPFields) -> Bool {
        fields.contains(.via) && isNamed(in: fields[.via] ?? "")
    }

    /// In `1.0 fred, HTTP/1.1 spoolgate-… (a comment)`, the second word of each entry is a name.
    private func isNamed(in value: String) -> Bool {
        value.utf8.split(separator: UInt8(ascii: ",")).contains { hop in
            let words = hop.split { $0 == 0x20 || $0 == 0x09 }
            return words.count > 1 && words[1].elementsEqual(text.utf8)
        }
    }
}
