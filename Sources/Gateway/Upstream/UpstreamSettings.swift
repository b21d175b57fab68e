// Where an upstream is and how to talk to it: values only.
//
// The text an operator writes for a target is read in UpstreamTargetText.swift. Nothing here is
// opened or checked on disk; a file that is missing shows up as `.notReached` with its name.

package import HTTPTypes

/// The address of an upstream.
package enum UpstreamTarget: Sendable, Equatable {
    /// `http://host[:port]` or `https://host[:port]`; a path may follow, put before every target.
    case http(base: String)
    /// `unix:/path/of.sock`: HTTP/1.1 over a unix socket.
    case unix(path: String)
    /// `directory:/path`: each upload becomes a file with a JSON record beside it.
    case directory(path: String)
    /// `s3:https://host[:port]/bucket[/prefix]`: each upload becomes an object of a bucket.
    case bucket(BucketAddress)

    /// Whether it can be a route's only target alone.
    package var standsAlone: Bool {
        switch self {
        case .directory, .bucket: true
        case .http, .unix: false
        }
    }
}

/// Where a bucket is.
package struct BucketAddress: Sendable, Equatable {
    /// `http://host[:port]` or `https://host[:port]`.
    package var endpoint: String
    /// The bucket's name.
    package var name: String
    /// What stands before the last part of every key; empty, or without a slash at its ends.
    package var prefix = ""
}

/// How objects are put into a bucket.
package struct BucketSettings: Sendable, Equatable {
    /// The largest object (Amazon S3, multipart upload limits).
    package static let largestObject: Int64 = 5 << 40
    /// The smallest and the largest part but the last; the latter also the largest object of one PUT.
    package static let partSizes: ClosedRange<Int64> = (5 << 20)...(5 << 30)

    /// The region that requests are signed for.
    package var region = "us-east-1"
    /// Where the access key is; nil: nowhere, and nothing can be put.
    package var credentials: BucketCredentials?
    /// How requests name the bucket.
    package var style = BucketStyle.path
    /// The largest upload that is one PUT, and the size of the parts of larger ones.
    package var partSize: Int64 = 1 << 30
    /// How long it is waited before a part, its beginning or its completion is sent again; no setting.
    package var pauses: [Duration] = [.seconds(1), .seconds(2), .seconds(4), .seconds(8)]
    /// Fields that each object gets beside those that describe its content.
    package var fields: [HTTPField] = []

    /// The product's defaults.
    package init() {}
}

/// Where the access key of a bucket is.
package enum BucketCredentials: Sendable, Equatable {
    /// In a file of two or three lines, or one of the AWS tools.
    case file(String)
    /// In `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and, of a key for a limited time, `AWS_SESSION_TOKEN`.
    case environment

    /// The file; nil: there is none.
    package var file: String? { if case .file(let path) = self { path } else { nil } }
}

/// How requests name their bucket (Amazon S3, virtual hosting of general purpose buckets).
package enum BucketStyle: String, Sendable, CaseIterable {
    /// As the first segment of the path.
    case path
    /// As the first label of the host's name.
    case virtualHost = "virtual-host"
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
    /// Where it is: at least one target, tried in this order; a directory or a bucket stands alone.
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
    /// Of use to a bucket alone.
    package var bucket = BucketSettings()

    /// Whether its target is a bucket.
    package var isBucket: Bool { if case .bucket? = targets.first { true } else { false } }

    /// Whether its target keeps uploads as files or objects.
    package var stores: Bool { targets.first?.standsAlone ?? false }

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
