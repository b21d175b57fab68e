// Limits the size of a response's head to one that web servers can relay.
//
// nginx reads the head into one buffer (fastcgi_buffer_size, 64 KiB as shipped). If it does not fit, nginx responds
// with 502, and the client never learns that its upload was accepted. Invariant: `fitting` always fits.

import HTTPTypes

extension ResponseHead {
    /// The most bytes of relayed fields: 64 KiB less room for FastCGI framing and the gateway's own fields.
    package static let mostFieldBytes = 60 << 10
    /// The most bytes of one field if not all can be relayed.
    private static let mostOfOne = 4 << 10

    /// The size of the field lines in bytes.
    package var fieldBytes: Int { fields.reduce(0) { $0 + $1.lineBytes } }

    /// The head with all its fields if they fit, otherwise with those that describe the response and its content.
    package var fitting: ResponseHead {
        guard fieldBytes > Self.mostFieldBytes else { return self }
        var head = self
        head.fields = [:]
        for field in fields where Self.kept.contains(field.name) {
            guard field.lineBytes <= Self.mostOfOne, head.fields[field.name] == nil else {
                continue
            }
            head.fields.append(field)
        }
        return head
    }

    // Each at most once and of `mostOfOne` bytes, these stay below `mostFieldBytes`.
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
