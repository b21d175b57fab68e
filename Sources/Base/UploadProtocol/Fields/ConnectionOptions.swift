// The options of `Connection`: names of fields that end at the next recipient (RFC 9110 §7.6.1).
//
// Pure. Invariant: they apply once, when a message is read, so that they remove no field that is added later.

package import HTTPTypes
import SpoolgateTextFormats

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
