// The object that an upload becomes in a bucket: its key, and the fields it is stored with.
//
// Pure. The key is `prefix/<id>-<name>`: <id> is the upload's 26 characters, <name> the client's file name, as a directory
// has it. Invariant: no client decides on a field but those that describe content, and
// no two uploads have one key.

package import HTTPTypes
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// One upload as an object of a bucket.
struct BucketObject {
    let id: UploadID
    /// The client's file name as the key has it.
    let name: String
    /// The path of the object, every segment percent-encoded; the bucket's name is in it in path style.
    let path: String
    /// Bytes of content.
    let length: Int64
    /// The fields it is stored with, its identity among them.
    let fields: HTTPFields
    /// Further fields, which cannot be signed alike everywhere: stores differ in what they make of runs of spaces.
    let unsigned: [HTTPField]
    /// The SHA-256 of its content where somebody has told it, and it was verified; nil: nobody knows.
    let digest: [UInt8]?

    /// What describes the content and may be the client's word.
    private static let describing: [HTTPField.Name] = [
        .contentType, .contentEncoding, .contentLanguage,
    ]
    /// Most bytes of a key.
    private static let mostOfKey = 1024

    /// The object of `upload` at `address`, with the fields of `request` that describe its content.
    ///
    /// - Parameters:
    ///   - upload: the upload.
    ///   - request: the request that it would be to an upstream over HTTP.
    ///   - address: the bucket.
    ///   - settings: the bucket's.
    ///   - isFormer: whether its key is the one that an earlier build gave it.
    init(
        _ upload: UploadID,
        _ request: UpstreamRequest,
        at address: BucketAddress,
        _ settings: BucketSettings,
        isFormer: Bool = false
    ) {
        id = upload
        let told = request.knownFacts.name
        let start = "\(address.prefix.isEmpty ? "" : address.prefix + "/")\(upload)-"
        name =
            isFormer
            ? told.formerlyStored
            : told.stored(
                atMost: min(ClientFileName.mostStored, Self.mostOfKey - start.utf8.count)
            )
        path =
            (settings.style == .path ? address.root(.path) : "")
            + "\(start)\(name)".split(separator: "/").map { "/" + PercentText.encode(String($0)) }
            .joined()
        length = request.content.length
        var fields = HTTPFields()
        for name in Self.describing {
            // A value that could not be signed is no loss that an upload should wait for.
            fields[name] = request.fields[name].flatMap(\.asSigned)
        }
        let disposition = request.fields[.contentDisposition]?.disposition(of: told)
        if let disposition, disposition.asSigned != disposition {
            unsigned = [HTTPField(name: .contentDisposition, value: disposition)]
        } else {
            fields[.contentDisposition] = disposition
            unsigned = []
        }
        for field in settings.fields { fields[field.name] = field.value }
        fields[.amzMetaUpload] = "\(upload)"
        self.fields = fields
        // Of a part of a representation nobody here has the whole (RFC 9110 §14.5). `try?`: what cannot be
        // read was refused before.
        let digests = try? DigestValues(.reprDigest, in: request.fields)
        digest = request.fields.contains(.contentRange) ? nil : digests?[.sha256]
    }
}

extension BucketSettings {
    /// Whether an operator may set a field on every object: `x-amz-*` that the gateway does not set itself,
    /// `Cache-Control` and `Expires`.
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
    /// A field's value as it is signed and sent: visible ASCII, one space for a run of them; nil for any
    /// other, and for none.
    fileprivate var asSigned: String? {
        guard utf8.allSatisfy({ (0x20...0x7e).contains($0) }) else { return nil }
        let words = split(separator: " ")
        return words.isEmpty ? nil : words.joined(separator: " ")
    }
}

extension String {
    /// This `Content-Disposition` in visible ASCII; nil if it has none and names no file.
    ///
    /// What is no ASCII says the file's name as RFC 8187 has it.
    fileprivate func disposition(of name: ClientFileName) -> String? {
        if utf8.allSatisfy({ (0x20...0x7e).contains($0) }) { return isEmpty ? nil : self }
        let kind = prefix { $0 != ";" }.split(separator: " ").first.map(String.init) ?? ""
        let known = HTTPField.Name(kind) == nil ? "attachment" : kind
        return "\(known); filename*=UTF-8''\(PercentText.encode(name.text))"
    }
}

extension UpstreamContent {
    /// Bytes in all, of content that is whole.
    var length: Int64 {
        switch self {
        case .none: 0
        case .bytes(let bytes): Int64(bytes.count)
        case .held(let buffer): Int64(buffer.count)
        case .file(_, let length, _): length
        case .framed, .stream:
            preconditionFailure("a bucket accepts only complete content without a form")
        }
    }

    /// `count` bytes of a file's content from `start` on.
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
