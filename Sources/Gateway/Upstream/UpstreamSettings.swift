// The address of an upstream and its limits.
//
// Nothing is opened here; a missing file results in `.notReached` with its name.

package import HTTPTypes
import SpoolgateTextFormats

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
