// What tus 1.0 calls things: its version, its media type, its fields.

package import HTTPTypes
import SpoolgateTextFormats

/// tus 1.0 (tus.io/protocols/resumable-upload).
package enum Tus {
    /// The one version that is spoken.
    package static let version = "1.0.0"
    /// The media type of content that goes to an upload.
    package static let mediaType = "application/offset+octet-stream"
    /// The extensions that are spoken.
    ///
    /// Not: `checksum-trailer`, since web servers drop trailers, and `concatenation-unfinished`.
    package static let extensions =
        "creation,creation-with-upload,creation-defer-length,expiration,checksum,termination,concatenation"
    /// What `Upload-Checksum` may be computed by.
    package static let checksumAlgorithms: [DigestAlgorithm] = [.sha1, .sha256, .sha512]

    /// What a server tells of itself in the answer to OPTIONS.
    ///
    /// - Parameter limits: the route's.
    /// - Returns: the fields that tus has for it.
    package static func capabilities(_ limits: UploadLimits) -> HTTPFields {
        var fields = HTTPFields()
        fields.append(.tusResumable, version)
        fields.append(.tusVersion, version)
        fields.append(.tusExtension, extensions)
        fields.append(.tusMaxSize, String(limits.maxSize))
        let algorithms = checksumAlgorithms.map(\.tusName).joined(separator: ",")
        fields.append(.tusChecksumAlgorithm, algorithms)
        return fields
    }
}

extension DigestAlgorithm {
    /// What tus calls it: without a hyphen.
    package var tusName: String { rawValue.filter { $0 != "-" } }
}

/// What `Upload-Concat` says of a creation.
package enum UploadConcat: Sendable, Equatable {
    /// It is a part.
    case partial
    /// It is made of parts: their URLs, as sent, in order.
    case final([String])

    /// Reads the field's value; nil where it is malformed.
    package init?(_ text: String) {
        if text == "partial" {
            self = .partial
            return
        }
        let mark = "final;"
        guard text.beginsWithBytes(of: mark) else { return nil }
        // Bytes, not characters: a combining mark would hide a space.
        let urls = text.utf8.dropFirst(mark.utf8.count).split { $0 == 0x20 || $0 == 0x09 }
        guard !urls.isEmpty else { return nil }
        self = .final(urls.map { String(decoding: $0, as: UTF8.self) })
    }
}

extension HTTPField.Name {
    /// `Tus-Resumable`, the version spoken.
    package static let tusResumable = made("Tus-Resumable")
    /// `Tus-Version`, the versions a server speaks.
    package static let tusVersion = made("Tus-Version")
    /// `Tus-Extension`, the extensions a server speaks.
    package static let tusExtension = made("Tus-Extension")
    /// `Tus-Max-Size`, most bytes of an upload.
    package static let tusMaxSize = made("Tus-Max-Size")
    /// `Tus-Checksum-Algorithm`, what checksums may be computed by.
    package static let tusChecksumAlgorithm = made("Tus-Checksum-Algorithm")
    /// `Upload-Defer-Length`, 1 where the length is not known yet.
    package static let uploadDeferLength = made("Upload-Defer-Length")
    /// `Upload-Concat`, whether an upload is a part or made of parts.
    package static let uploadConcat = made("Upload-Concat")
    /// `Upload-Checksum`, the algorithm and the digest of a request's content.
    package static let uploadChecksum = made("Upload-Checksum")
    /// `Upload-Expires`, when an unfinished upload is removed.
    package static let uploadExpires = made("Upload-Expires")
    /// `Content-Location` (RFC 9110 §8.7).
    static let contentLocation = made("Content-Location")
    /// `Prefer` (RFC 7240).
    package static let prefer = made("Prefer")
}
