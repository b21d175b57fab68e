// The address of an upstream and its limits.
//
// Nothing is opened here; a missing file results in `.notReached` with its name.

package import SpoolgateCurl
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// The address of an upstream.
package enum UpstreamTarget: Sendable, Equatable {
    /// `http://host[:port]` or `https://host[:port]`, optionally with a path that precedes every request target.
    case http(base: String)
    /// `unix:/path/of.sock`: HTTP/1.1 over a unix socket.
    case unix(path: String)
    /// A store, which must be the only target of its route.
    case store(any Store)

    /// The kinds of stores.
    static let stores: [any Store.Type] = [DirectoryDrop.self, BucketAddress.self]

    package var store: (any Store)? { if case .store(let store) = self { store } else { nil } }

    /// Compares the texts, which differ for different targets.
    package static func == (one: Self, other: Self) -> Bool { one.text == other.text }
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
    /// The targets, at least one, tried in this order; a store must be the only one.
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
    package var tls = TLSFiles()
    /// The meaning of the application's redirects; ignored for a store.
    package var redirects = RedirectRules()
    /// The settings for a bucket; ignored if the target is not a bucket.
    package var bucket = BucketSettings()

    /// The store that is the upstream; nil if the upstream is an application.
    package var store: (any Store)? { targets.first?.store }
    /// The store that is the upstream, if it is on a server.
    package var serverStore: (any ServerStore)? { store?.onServer }

    /// The authorities of the targets over HTTP.
    package var hosts: [String] {
        targets.compactMap { target in
            guard case .http(let base) = target else { return nil }
            return AbsoluteURL(base).map { $0.origin[1] }
        }
    }

    /// Creates settings with the product's defaults.
    package init(
        targets: [UpstreamTarget],
        connectTimeout: Duration = .seconds(10),
        stallTimeout: Duration = .seconds(60),
        responseTimeout: Duration = .seconds(300)
    ) {
        self.targets = targets
        self.connectTimeout = connectTimeout
        self.stallTimeout = stallTimeout
        self.responseTimeout = responseTimeout
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
        } else if let scheme = ["http://", "https://"].first(where: text.hasPrefix) {
            self = .http(base: try Self.base(scheme, text.dropFirst(scheme.count)))
        } else if let kind = Self.stores.first(where: { text.hasPrefix("\($0.scheme):") }) {
            self = .store(try kind.init(address: text.dropFirst(kind.scheme.utf8.count + 1)))
        } else {
            let schemes = ["http://", "https://", "unix:"] + Self.stores.map { "\($0.scheme):" }
            let others = schemes.dropLast().joined(separator: ", ")
            throw .init(reason: "it must begin with \(others) or \(schemes[schemes.count - 1])")
        }
    }

    package var text: String {
        switch self {
        case .http(let base): base
        case .unix(let path): "unix:\(path)"
        case .store(let store): store.text
        }
    }

    /// The identity of the application: its host and port, socket or directory, the same for every spelling.
    ///
    /// The path of a URL is left out, because one application may serve several paths.
    package var place: String {
        switch self {
        case .http(let base): UpstreamLocation(base: base).origin
        case .unix: text
        case .store(let store): store.place
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
        guard others.isEmpty || !(others + [self]).contains(where: { $0.store != nil }) else {
            throw .init(reason: "a directory or a bucket must be the only target of its route")
        }
    }

    static func absolute(
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

    static func base(
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

    /// The location of a target; nil for a store.
    init?(_ target: UpstreamTarget) {
        switch target {
        case .http(let base): self.init(base: base)
        case .unix(let path): self.init(base: "http://localhost", socket: path)
        case .store: return nil
        }
    }

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
