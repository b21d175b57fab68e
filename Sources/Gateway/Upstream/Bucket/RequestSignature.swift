// The signature of a request to a bucket: AWS Signature Version 4 of the service `s3` (Amazon S3 API Reference,
// "Signature Calculations for the Authorization Header").
//
// Invariant: the signed bytes are the sent bytes, so the target and the values are already in canonical form.

import HTTPTypes
import SpoolgateCrypto
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

enum SignedContent: Equatable {
    /// The content is signed by its SHA-256 (32 bytes).
    case digest([UInt8])
    /// The content is not signed; only TLS protects it.
    case unsigned

    /// The signed form of empty content.
    static let none = SignedContent.digest(RunningDigest(.sha256).finish())

    /// The value of `x-amz-content-sha256`.
    var text: String {
        switch self {
        case .digest(let bytes): Hexadecimal.text(bytes)
        case .unsigned: "UNSIGNED-PAYLOAD"
        }
    }
}

struct RequestSignature {
    let key: AccessKey
    let region: String
    /// The time of the requests; stores accept a difference of about 15 minutes from their own clocks.
    let time: WallTime

    private static let algorithm = "AWS4-HMAC-SHA256"

    /// Adds the signature to the fields of a request.
    ///
    /// Each name in the fields must occur once, and no value may contain a run of spaces. The path segments of the
    /// target, and the names and values of its query, must be percent-encoded except for unreserved characters. The
    /// query must be sorted and have `=` after each name.
    func sign(_ request: inout UpstreamRequest, host: String, _ content: SignedContent) {
        var fields = request.fields
        fields[.host] = host
        fields[.amzDate] = stamp
        fields[.amzContentSHA256] = content.text
        fields[.amzSecurityToken] = key.token
        let lines = fields.map { (name: $0.name.canonicalName, value: $0.value) }
            .sorted { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }
        let names = lines.map(\.name).joined(separator: ";")
        let parts = request.target.split(separator: "?", maxSplits: 1)
        let canonical =
            [request.method.rawValue, String(parts[0]), parts.count > 1 ? String(parts[1]) : ""]
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
        request.fields = fields
    }

    /// `time` in the form that AWS uses, such as `20261121T123100Z`.
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

extension UpstreamContent {
    /// Computes the SHA-256 of the content (32 bytes) in constant memory, and calls `onProgress` repeatedly.
    ///
    /// - Throws: the errors of reading the content, or `ContentLengthMismatch`.
    func digest(_ onProgress: () -> Void) throws -> [UInt8] {
        let digest = RunningDigest(.sha256)
        guard let source = ContentSource(self) else { return digest.finish() }
        let size = Int(min(1 << 20, source.length ?? 1 << 20))
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 4096)
        defer { buffer.deallocate() }
        while true {
            let count = try source.read(into: buffer)
            guard count > 0 else { return digest.finish() }
            digest.update(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
            onProgress()
        }
    }
}

extension HTTPField.Name {
    static let amzDate = made("x-amz-date")
    static let amzContentSHA256 = made("x-amz-content-sha256")
    static let amzSecurityToken = made("x-amz-security-token")
}
