// The address of an upstream and its limits.
//
// Nothing is opened here; a missing file results in `.notReached` with its name.

package import HTTPTypes
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// The address of an upstream.
package enum UpstreamTarget: Sendable, Equatable {
    /// `http://host[:port]` or `https://host[:port]`, optionally with a path that precedes every request target.
    case http(base: String)
    /// `unix:/path/of.sock`: HTTP/1.1 over a unix socket.
    case unix(path: String)
    /// `directory:/path`: each upload becomes a file, next to a JSON record.
    case directory(path: String)
    /// `s3:https://host[:port]/bucket[/prefix]`: each upload becomes an object of a bucket.
    case bucket(BucketAddress)

    /// Whether the target must be the only one of its route.
    package var standsAlone: Bool {
        switch self {
        case .directory, .bucket: true
        case .http, .unix: false
        }
    }
}

/// The address of a bucket.
package struct BucketAddress: Sendable, Equatable {
    /// `http://host[:port]` or `https://host[:port]`, the store's address.
    package var endpoint: String
    package var name: String
    /// The start of every key, before a slash.
    ///
    /// May be empty; must not begin or end with a slash.
    package var prefix = ""
}

/// The settings for objects in a bucket.
package struct BucketSettings: Sendable, Equatable {
    /// The maximum size of an object in bytes (Amazon S3, multipart upload limits).
    package static let largestObject: Int64 = 5 << 40

    package var region = "us-east-1"
    /// The location of the access key; if nil, there is no key, and objects cannot be stored.
    package var credentials: BucketCredentials?
    package var style = BucketStyle.path
    /// The maximum size in bytes of an upload sent by a single PUT, and the size of the parts of larger uploads.
    ///
    /// Not a setting of the operator. Stores accept from 5 MiB to 5 GiB.
    package var partSize: Int64 = 1 << 30
    /// How long to wait before each repetition of a request that sends a part, or starts or completes the object.
    ///
    /// Not a setting of the operator.
    package var pauses: [Duration] = [.seconds(1), .seconds(2), .seconds(4), .seconds(8)]
    /// Fields of each object in addition to those that describe its content.
    package var fields: [HTTPField] = []

    /// Creates the default settings.
    package init() {}
}

/// The location of a bucket's access key.
package enum BucketCredentials: Sendable, Equatable {
    /// A file of two or three lines, or a credentials file of the AWS tools.
    case file(String)
    /// `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and, for a temporary key, `AWS_SESSION_TOKEN`.
    case environment

    package var file: String? { if case .file(let path) = self { path } else { nil } }
}

/// How requests name their bucket (Amazon S3, virtual hosting of general purpose buckets).
package enum BucketStyle: String, Sendable, CaseIterable {
    /// The bucket's name is the first segment of the path.
    case path
    /// The bucket's name is the first label of the host name.
    case virtualHost = "virtual-host"
}

/// Which requests use a kept connection.
package enum ConnectionReuse: String, Sendable, CaseIterable {
    /// Those that are repeated if the connection is closed without a response.
    case safe
    case always
}

/// Why a text is not a valid upstream target.
package struct UpstreamTargetError: Error, Sendable, Equatable {
    /// One sentence for the operator.
    package var reason: String

    /// Creates the error.
    package init(reason: String) { self.reason = reason }
}

/// One upstream and its limits.
package struct UpstreamSettings: Sendable, Equatable {
    /// The targets, at least one, tried in this order; a directory or a bucket must be the only one.
    package var targets: [UpstreamTarget]
    /// The maximum time to connect to one target, including the TLS handshake.
    package var connectTimeout: Duration
    /// The maximum time without a byte sent or received while the request is being sent.
    package var stallTimeout: Duration
    /// The maximum time from the end of the request to the response's head, and between two parts of the response.
    package var responseTimeout: Duration
    /// Whether the setting `timeout` gives all three timeouts, as for a webhook.
    package var hasOneTimeout = false
    package var reuse = ConnectionReuse.safe
    /// The PEM file of the trusted authorities for https; nil means those of the system.
    package var certificateAuthority: String?
    /// The PEM file of the client certificate; nil if the gateway presents none.
    package var clientCertificate: String?
    /// The PEM file of the client certificate's key; nil if `clientCertificate` contains it.
    package var clientKey: String?
    /// The meaning of the application's redirects; ignored for a directory or a bucket.
    package var redirects = RedirectRules()
    /// The settings for a bucket; ignored if the target is not a bucket.
    package var bucket = BucketSettings()

    package var isBucket: Bool { if case .bucket? = targets.first { true } else { false } }

    /// The authorities of the targets over HTTP.
    package var hosts: [String] {
        targets.compactMap { target in
            guard case .http(let base) = target else { return nil }
            return AbsoluteURL(base).map { $0.origin[1] }
        }
    }

    package var stores: Bool { targets.first?.standsAlone ?? false }

    /// Creates settings with the product's defaults.
    package init(
        targets: [UpstreamTarget],
        connectTimeout: Duration = .seconds(10),
        stallTimeout: Duration = .seconds(60),
        responseTimeout: Duration = .seconds(300),
        certificateAuthority: String? = nil,
        clientCertificate: String? = nil,
        clientKey: String? = nil
    ) {
        self.targets = targets
        self.connectTimeout = connectTimeout
        self.stallTimeout = stallTimeout
        self.responseTimeout = responseTimeout
        self.certificateAuthority = certificateAuthority
        self.clientCertificate = clientCertificate
        self.clientKey = clientKey
    }
}

// MARK: Targets as text

// The operator's text of an upstream target, and the parts of a parsed one.
//
// Every error is one sentence with the correct form. Invariant: a base in `UpstreamTarget.http` has a scheme, a host
// and a valid port if any, has no user, query or fragment, and does not end in a slash.

extension UpstreamTarget {
    /// Parses the text of the setting: `http://host[:port][/path]`, `https://…`, `unix:/path`, `directory:/path` or
    /// `s3:https://host[:port]/bucket[/prefix]`.
    package init(_ text: String) throws(UpstreamTargetError) {
        guard !text.hasControlCharacters else {
            throw .init(reason: "an upstream target must not have control characters")
        }
        if let path = text.dropping(prefix: "unix:") {
            self = .unix(path: try Self.absolute(path, scheme: "unix", example: "/run/app.sock"))
            // `sun_path` in unix(7) holds 108 bytes, including the final NUL.
            guard path.utf8.count < 108 else {
                throw .init(reason: "unix: the socket's path is longer than 107 bytes")
            }
        } else if let path = text.dropping(prefix: "directory:") {
            self = .directory(
                path: try Self.absolute(path, scheme: "directory", example: "/srv/incoming")
            )
        } else if let scheme = ["http://", "https://"].first(where: text.hasPrefix) {
            self = .http(base: try Self.base(scheme, text.dropFirst(scheme.count)))
        } else if let address = text.dropping(prefix: "s3:") {
            self = .bucket(try BucketAddress(address))
        } else {
            throw .init(
                reason: "it must begin with http://, https://, unix:, directory: or s3:"
            )
        }
    }

    /// The target as written in the settings.
    package var text: String {
        switch self {
        case .http(let base): base
        case .unix(let path): "unix:\(path)"
        case .directory(let path): "directory:\(path)"
        case .bucket(let address): address.text
        }
    }

    /// The identity of the application: its host and port, socket or directory, the same for every spelling.
    ///
    /// The path of a URL is left out, because one application may serve several paths.
    package var place: String {
        switch self {
        case .http(let base): UpstreamLocation(base: base).origin
        case .unix, .directory: text
        case .bucket(let address): UpstreamLocation(base: address.endpoint).origin
        }
    }

    /// Parses one target of a list, after the targets `others`.
    ///
    /// - Throws: an error also if `others` contains the target, or a directory or a bucket is not the only target.
    package init(_ text: String, after others: [UpstreamTarget]) throws(UpstreamTargetError) {
        try self.init(text)
        guard !others.contains(self) else {
            throw .init(reason: "this target is listed twice")
        }
        guard others.isEmpty || !(others + [self]).contains(where: \.standsAlone) else {
            throw .init(reason: "a directory or a bucket must be the only target of its route")
        }
    }

    private static func absolute(
        _ path: Substring,
        scheme: String,
        example: String
    ) throws(UpstreamTargetError) -> String {
        guard path.hasPrefix("/"), !path.hasPrefix("//") else {
            throw .init(
                reason: "\(scheme): requires an absolute path, as in \(scheme):\(example)"
            )
        }
        return String(path)
    }

    fileprivate static func base(
        _ scheme: String,
        _ rest: Substring
    ) throws(UpstreamTargetError) -> String {
        guard !rest.contains(" ") else {
            throw .init(reason: "\(scheme): a URL must not have spaces; use %20 in a path")
        }
        guard !rest.contains("?"), !rest.contains("#") else {
            throw .init(reason: "\(scheme): an upstream target must not have a query or a fragment")
        }
        let authority = rest.prefix { $0 != "/" }
        guard !authority.contains("@") else {
            throw .init(
                reason: "\(scheme): an upstream target must not have a user or password"
            )
        }
        try checkAuthority(authority, scheme: scheme)
        var base = Substring(scheme + rest)
        while base.hasSuffix("/") { base.removeLast() }
        return String(base)
    }

    private static func checkAuthority(
        _ authority: Substring,
        scheme: String
    ) throws(UpstreamTargetError) {
        var host = authority
        var port: Substring?
        if authority.hasPrefix("[") {
            guard let end = authority.firstIndex(of: "]") else {
                throw .init(reason: "\(scheme)\(authority): the IPv6 address has no closing ]")
            }
            host = authority[authority.index(after: authority.startIndex)..<end]
            let tail = authority[authority.index(after: end)...]
            guard tail.isEmpty || tail.hasPrefix(":") else {
                throw .init(reason: "\(scheme)\(authority): only a port may follow the address")
            }
            port = tail.isEmpty ? nil : tail.dropFirst()
            guard !host.isEmpty,
                host.utf8.allSatisfy(\.isOfAddress)
            else {
                throw .init(reason: "\(scheme)\(authority): invalid IPv6 address between [ and ]")
            }
        } else {
            if let colon = authority.firstIndex(of: ":") {
                host = authority[..<colon]
                port = authority[authority.index(after: colon)...]
            }
            guard !host.isEmpty else {
                throw .init(reason: "\(scheme) requires a host, as in \(scheme)127.0.0.1:8080")
            }
            guard host.utf8.allSatisfy({ $0.isUnreserved && $0 != UInt8(ascii: "~") }) else {
                throw .init(reason: "\(scheme)\(authority): \(host) is not a host name or address")
            }
        }
        if let port {
            guard let number = UInt16(digits: port), number > 0 else {
                throw .init(
                    reason: "\(scheme)\(authority): a port must be a number from 1 to 65535"
                )
            }
        }
    }
}

extension BucketAddress {
    /// Parses `http[s]://host[:port]/bucket[/prefix]`, and percent-decodes the prefix.
    fileprivate init(_ text: Substring) throws(UpstreamTargetError) {
        let example = "s3:https://s3.eu-central-1.amazonaws.com/bucket/incoming"
        guard let scheme = ["http://", "https://"].first(where: text.hasPrefix) else {
            throw .init(reason: "s3: requires the URL of a bucket, as in \(example)")
        }
        let base = try UpstreamTarget.base(scheme, text.dropFirst(scheme.count))
        let segments = base.dropFirst(scheme.count)
            .split(separator: "/", omittingEmptySubsequences: false)
        guard segments.count > 1 else {
            throw .init(reason: "s3: requires a bucket after the host, as in \(example)")
        }
        endpoint = scheme + segments[0]
        name = String(segments[1])
        // Stores other than Amazon's allow more names, so all these names are accepted.
        guard (3...255).contains(name.utf8.count),
            name.utf8.allSatisfy({ $0.isUnreserved && $0 != UInt8(ascii: "~") }),
            name.utf8.first?.isAlphanumeric ?? false
        else {
            throw .init(
                reason: "s3: '\(name)' is not a bucket name; use 3 to 255 letters, digits, dots, "
                    + "hyphens and underscores, and separate a prefix with a slash"
            )
        }
        var decoded: [String] = []
        for segment in segments.dropFirst(2) {
            let bytes = PercentText.decode(segment.utf8)
            guard let text = String(validating: bytes, as: UTF8.self), !text.hasControlCharacters,
                !text.contains("/"), !["", ".", ".."].contains(text)
            else {
                throw .init(
                    reason:
                        "s3: the parts of a prefix must be separated by single slashes, must not be . or .., "
                        + "and must be UTF-8 without control characters"
                )
            }
            decoded.append(text)
        }
        prefix = decoded.joined(separator: "/")
        guard prefix.utf8.count <= Self.maximumPrefixSize else {
            throw .init(reason: "s3: the prefix is longer than \(Self.maximumPrefixSize) bytes")
        }
    }

    /// The maximum size of a prefix in bytes.
    ///
    /// A key has at most 1024 bytes, and a slash, the upload's ID, a hyphen and a name of up to 100 bytes follow the
    /// prefix.
    private static let maximumPrefixSize = 1024 - 26 - 100 - 2

    package var text: String {
        let path = [name] + prefix.split(separator: "/").map { PercentText.encode(String($0)) }
        return "s3:\(endpoint)/\(path.joined(separator: "/"))"
    }
}

struct UpstreamLocation {
    /// The name in log messages.
    let name: String
    /// The URL for libcurl; its path is replaced by the request target.
    let url: String
    /// The host and optional port, sent as `Host` if the request has no such field.
    let authority: String
    /// The path before every request target.
    ///
    /// Empty, or does not end in a slash.
    let basePath: String
    /// The path of the unix socket; nil for TCP.
    let socket: String?
    let isSecure: Bool

    init(base: String, socket: String? = nil) {
        isSecure = base.hasPrefix("https://")
        let scheme = isSecure ? "https://" : "http://"
        let rest = base.dropFirst(scheme.count)
        authority = String(rest.prefix { $0 != "/" })
        basePath = String(rest.dropFirst(authority.count))
        url = scheme + authority + "/"
        name = socket.map { "unix:\($0)" } ?? base
        self.socket = socket
    }

    /// `scheme://host:port`, in the same form for every spelling of the base.
    var origin: String {
        AbsoluteURL(url).map { "\($0.origin[0])://\($0.origin[1]):\($0.origin[2])" } ?? url
    }

    var host: Substring {
        authority.hasPrefix("[")
            ? authority.prefix { $0 != "]" }.dropFirst() : authority.prefix { $0 != ":" }
    }

    /// Returns the request target to send upstream for the client's `target`; nil if `target` is invalid.
    func requestTarget(_ target: String) -> String? {
        guard !target.isEmpty, target.utf8.allSatisfy({ $0 > 0x20 && $0 != 0x7f }) else {
            return nil
        }
        return target.hasPrefix("/") ? basePath + target : target
    }
}

extension String {
    fileprivate func dropping(prefix: String) -> Substring? {
        hasPrefix(prefix) ? dropFirst(prefix.count) : nil
    }
}
