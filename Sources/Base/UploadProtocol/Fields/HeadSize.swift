// How large a response's head may be so that web servers in front can relay it.
//
// nginx takes it whole into one buffer (fastcgi_buffer_size, 64 KiB as shipped) and else answers 502: then a
// client would never hear that its upload was taken. Invariant: what is left always fits.

import HTTPTypes

extension ResponseHead {
    /// Most bytes of fields that are relayed: 64 KiB less what a front's record and our own fields take.
    package static let mostFieldBytes = 60 << 10
    /// Most bytes of one field where not all can be relayed.
    private static let mostOfOne = 4 << 10

    /// Bytes of the fields as lines.
    package var fieldBytes: Int { fields.reduce(0) { $0 + $1.lineBytes } }

    /// The head with all its fields if they can be relayed, else with those that say what the response
    /// and its content are.
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

    // Once each and of that size at most, these are below `mostFieldBytes`.
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
