// Limits a response's head to a size that web servers can relay.
//
// nginx reads the head into one buffer (fastcgi_buffer_size, 64 KiB as shipped). If the head does not fit, the client
// receives 502 and never learns that its upload was accepted. Invariant: `fitting` always fits.

import HTTPTypes

extension ResponseHead {
    /// The maximum size in bytes: 64 KiB less room for FastCGI framing and the gateway's own fields.
    package static let mostFieldBytes = 60 << 10
    /// The maximum size in bytes of one relayed field if all fields together are too large.
    private static let mostOfOne = 4 << 10

    /// The size of the field lines in bytes.
    package var fieldBytes: Int { fields.reduce(0) { $0 + $1.lineBytes } }

    /// The head, reduced to fields that describe the response and its content if not all fields fit.
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

    // Each field occurs at most once with at most `mostOfOne` bytes, so that the total stays below `mostFieldBytes`.
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
