// The signature of a request to a bucket: AWS Signature Version 4 of the service `s3`, in the field
// Authorization (Amazon S3 API Reference, "Signature Calculations for the Authorization Header").
//
// Pure but for OpenSSL's digests. All fields that are sent are signed. Invariant: what is signed is what is
// sent, byte by byte: the target stands in canonical form already, and so do the values.

import HTTPTypes
import SpoolgateCrypto
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// What a request's content is signed as.
enum SignedContent: Equatable {
    /// Its SHA-256, 32 bytes.
    case digest([UInt8])
    /// Nothing: whoever reads on the way could change it, were it not for TLS.
    case unsigned

    /// No content.
    static let none = SignedContent.digest(RunningDigest(.sha256).finish())

    /// The value of `x-amz-content-sha256`.
    var text: String {
        switch self {
        case .digest(let bytes): Hexadecimal.text(bytes)
        case .unsigned: "UNSIGNED-PAYLOAD"
        }
    }
}

/// Signs requests with one key for one region.
struct RequestSignature {
    let key: AccessKey
    let region: String
    /// When the requests are made; a store takes what is some 15 minutes off.
    let time: WallTime

    private static let algorithm = "AWS4-HMAC-SHA256"

    /// `fields` with those that sign a request.
    ///
    /// - Parameters:
    ///   - fields: what else is sent, each name once, the values without runs of spaces.
    ///   - method: the method.
    ///   - target: the request target: a path whose segments are percent-encoded but for unreserved
    ///     characters, and perhaps a query of such names and values, sorted, each with its `=`.
    ///   - host: the value of `Host`.
    ///   - content: what stands for the content.
    /// - Returns: all fields of the request.
    func signed(
        _ fields: HTTPFields,
        _ method: HTTPRequest.Method,
        _ target: String,
        host: String,
        _ content: SignedContent
    ) -> HTTPFields {
        var fields = fields
        fields[.host] = host
        fields[.amzDate] = stamp
        fields[.amzContentSHA256] = content.text
        fields[.amzSecurityToken] = key.token
        let lines = fields.map { (name: $0.name.canonicalName, value: $0.value) }
            .sorted { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }
        let names = lines.map(\.name).joined(separator: ";")
        let parts = target.split(separator: "?", maxSplits: 1)
        let canonical =
            [method.rawValue, String(parts[0]), parts.count > 1 ? String(parts[1]) : ""]
            + lines.map { "\($0.name):\($0.value)" } + ["", names, content.text]
        let scope = "\(stamp.prefix(8))/\(region)/s3/aws4_request"
        let text = [
            Self.algorithm, stamp, scope,
            Hexadecimal.text(Self.digest(canonical.joined(separator: "\n"))),
        ].joined(separator: "\n")
        let signature = Hexadecimal.text(HMAC256.code(Array(text.utf8), key: signingKey))
        fields[.authorization] =
            "\(Self.algorithm) Credential=\(key.id)/\(scope),SignedHeaders=\(names),"
            + "Signature=\(signature)"
        return fields
    }

    /// `20261121T123100Z`.
    private var stamp: String { time.description.filter { $0 != "-" && $0 != ":" } }

    private var signingKey: [UInt8] {
        [String(stamp.prefix(8)), region, "s3", "aws4_request"]
            .reduce(Array("AWS4\(key.secret)".utf8)) { HMAC256.code(Array($1.utf8), key: $0) }
    }

    private static func digest(_ text: String) -> [UInt8] {
        let bytes = Array(text.utf8)
        return SHA256.digest(bytes.span.bytes)
    }
}

extension HTTPField.Name {
    static let amzDate = made("x-amz-date")
    static let amzContentSHA256 = made("x-amz-content-sha256")
    static let amzSecurityToken = made("x-amz-security-token")
}
