// The address of a bucket, and the settings for its objects.

package import HTTPTypes
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// The address of a bucket: each upload becomes an object.
///
/// The setting is `s3:https://host[:port]/bucket[/prefix]`.
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
    package var region = "us-east-1"
    /// The location of the access key; if nil, there is no key, and objects cannot be stored.
    ///
    /// A file has two or three lines, or is a credentials file of the AWS tools. The variables are `AWS_ACCESS_KEY_ID`,
    /// `AWS_SECRET_ACCESS_KEY` and, for a temporary key, `AWS_SESSION_TOKEN`.
    package var credentials: StoreCredentials?
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

/// How requests name their bucket (Amazon S3, virtual hosting of general purpose buckets).
package enum BucketStyle: String, Sendable, CaseIterable {
    /// The bucket's name is the first segment of the path.
    case path
    /// The bucket's name is the first label of the host name.
    case virtualHost = "virtual-host"
}

extension UpstreamTarget {
    /// A bucket as a target.
    package static func bucket(_ address: BucketAddress) -> UpstreamTarget { .store(address) }
}

extension BucketAddress: ServerStore {
    package static var scheme: String { "s3" }
    package static var kind: String { "an s3:" }
    package static var keySetting: String { "s3.credentials" }
    /// The maximum size of an object (Amazon S3, multipart upload limits).
    package static var largestObject: Int64 { 5 << 40 }

    /// Parses `http[s]://host[:port]/bucket[/prefix]`, and percent-decodes the prefix.
    package init(address text: Substring) throws(UpstreamTargetError) {
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

    package var shortText: String { "s3:\(endpoint)/\(name)" }

    package var description: String { "bucket \(name) at \(endpoint)" }

    /// Prepares attempts; no connection is opened yet.
    package func access(_ settings: UpstreamSettings) -> any UpstreamAccess {
        Bucket(self, settings)
    }

    /// The place of the access key; nil if the settings name none.
    package func credentials(in settings: UpstreamSettings) -> StoreCredentials? {
        settings.bucket.credentials
    }

    /// The error in the access key, read now; nil if the key is valid.
    package func keyFault(_ settings: UpstreamSettings) -> String? {
        settings.bucket.accessKeyFault?.reason
    }
}
