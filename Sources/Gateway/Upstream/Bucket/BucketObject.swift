// The object that stores an upload in a bucket: its key and its fields.
//
// The key is `prefix/<id>-<name>`: <id> is the upload's 26 characters, and <name> is the client's file name, as in a
// directory. Invariant: clients determine only the fields that describe content, and no two uploads have the same key.

package import HTTPTypes
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct BucketObject {
    let id: UploadID
    let name: String
    /// The percent-encoded path in requests.
    ///
    /// In path style, the path begins with the bucket's name.
    let path: String
    let length: Int64
    /// The signed fields, including the upload's identity.
    let fields: HTTPFields
    /// Fields that are not signed, because stores disagree on runs of spaces in signed values.
    let unsigned: [HTTPField]
    /// The verified SHA-256 of the content; nil if unknown.
    let digest: [UInt8]?

    private static let describing: [HTTPField.Name] = [
        .contentType, .contentEncoding, .contentLanguage,
    ]
    private static let maximumKeySize = 1024

    /// Describes the object of an upload.
    ///
    /// `request` must be the one that an upstream over HTTP would receive.
    init(
        _ upload: UploadID,
        _ request: UpstreamRequest,
        at address: BucketAddress,
        _ settings: BucketSettings
    ) {
        id = upload
        let stated = request.knownFacts.name
        let start = "\(address.prefix.isEmpty ? "" : address.prefix + "/")\(upload)-"
        name = stated.stored(
            upTo: min(ClientFileName.maximumStored, Self.maximumKeySize - start.utf8.count)
        )
        path =
            (settings.style == .path ? address.root(.path) : "")
            + "\(start)\(name)".split(separator: "/").map { "/" + PercentText.encode(String($0)) }
            .joined()
        length = request.content.length
        var fields = HTTPFields()
        for name in Self.describing {
            // The upload must not fail for a value that cannot be signed.
            fields[name] = request.fields[name].flatMap(\.asSigned)
        }
        let disposition = request.fields[.contentDisposition]?.disposition(of: stated)
        if let disposition, disposition.asSigned != disposition {
            unsigned = [HTTPField(name: .contentDisposition, value: disposition)]
        } else {
            fields[.contentDisposition] = disposition
            unsigned = []
        }
        for field in settings.fields { fields[field.name] = field.value }
        fields[.amzMetaUpload] = "\(upload)"
        self.fields = fields
        // With `Content-Range`, the content is only a part, to which the digest of the whole does not apply (RFC 9110
        // §14.5). `try?`: an invalid digest was refused before.
        let digests = try? DigestValues(.reprDigest, in: request.fields)
        digest = request.fields.contains(.contentRange) ? nil : digests?[.sha256]
    }
}

extension BucketSettings {
    /// Whether an operator may set this field: `Cache-Control`, `Expires` or an `x-amz-*` field that the gateway does
    /// not set.
    package static func takes(_ field: HTTPField) -> Bool {
        let name = field.name.canonicalName
        guard field.value.asSigned == field.value else { return false }
        return ["cache-control", "expires"].contains(name)
            || name.hasPrefix("x-amz-") && !name.hasPrefix("x-amz-copy-source")
                && ![HTTPField.Name.amzDate, .amzContentSHA256, .amzSecurityToken, .amzMetaUpload]
                    .contains(field.name)
    }
}

extension String {
    /// The value to sign and send, which is visible ASCII with single spaces; nil if this value is blank or has other
    /// characters.
    fileprivate var asSigned: String? {
        guard utf8.allSatisfy({ (0x20...0x7e).contains($0) }) else { return nil }
        let words = split(separator: " ")
        return words.isEmpty ? nil : words.joined(separator: " ")
    }
}

extension String {
    /// This value of `Content-Disposition`; nil if it is empty.
    ///
    /// A value that is not visible ASCII is replaced by one that states `name` in the form of RFC 8187.
    fileprivate func disposition(of name: ClientFileName) -> String? {
        if utf8.allSatisfy({ (0x20...0x7e).contains($0) }) { return isEmpty ? nil : self }
        let kind = prefix { $0 != ";" }.split(separator: " ").first.map(String.init) ?? ""
        let known = HTTPField.Name(kind) == nil ? "attachment" : kind
        return "\(known); filename*=UTF-8''\(PercentText.encode(name.text))"
    }
}

extension UpstreamContent {
    var length: Int64 {
        guard let source = ContentSource(self) else { return 0 }
        guard let length = source.length else {
            preconditionFailure("a bucket accepts only complete content")
        }
        return length
    }

    func part(from start: Int64, _ count: Int64) -> UpstreamContent {
        guard case .file(_, _, let read) = self else {
            preconditionFailure("content larger than a part must be in a file")
        }
        return .file(descriptor: nil, length: count) { try read($0, start + $1) }
    }
}

extension HTTPField.Name {
    static let amzMetaUpload = made("x-amz-meta-spoolgate-upload")
}
