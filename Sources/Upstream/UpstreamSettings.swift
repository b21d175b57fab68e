// Where an upstream is and how to talk to it: values only.
//
// The text an operator writes for a target is read in UpstreamTargetText.swift. Nothing here is
// opened or checked on disk; a file that is missing shows up as `.notReached` with its name.

/// The address of an upstream.
package enum UpstreamTarget: Sendable, Equatable {
    /// `http://host[:port]` or `https://host[:port]`; a path may follow, put before every target.
    case http(base: String)
    /// `unix:/path/of.sock`: HTTP/1.1 over a unix socket.
    case unix(path: String)
    /// `directory:/path`: each upload becomes a file with a JSON record beside it.
    case directory(path: String)
}

/// Why a text is no upstream target.
package struct UpstreamTargetError: Error, Sendable, Equatable {
    /// One sentence for the operator.
    package var reason: String

    /// Makes the error.
    package init(reason: String) { self.reason = reason }
}

/// One upstream and its limits.
package struct UpstreamSettings: Sendable, Equatable {
    /// Where it is: at least one target, tried in this order; a directory stands alone.
    package var targets: [UpstreamTarget]
    /// Longest time to connect to one target, TLS included.
    package var connectTimeout: Duration
    /// Longest time without a byte going either way while the request is sent.
    package var stallTimeout: Duration
    /// Longest time from the request's end to the response's head, and between two parts of it.
    package var responseTimeout: Duration
    /// PEM file of the authorities to trust for https instead of the system's; nil: the system's.
    package var certificateAuthority: String?
    /// PEM file of the client certificate; nil: none.
    package var clientCertificate: String?
    /// PEM file of its key; nil: in `clientCertificate`.
    package var clientKey: String?

    /// Makes settings; the defaults are the product's.
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
