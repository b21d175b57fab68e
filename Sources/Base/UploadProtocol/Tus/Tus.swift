// The constants of tus 1.0.

package import HTTPTypes
import SpoolgateTextFormats

/// tus 1.0 (tus.io/protocols/resumable-upload).
package enum Tus {
    package static let version = "1.0.0"
    package static let mediaType = "application/offset+octet-stream"
    /// The supported extensions.
    ///
    /// `checksum-trailer` is missing, because web servers drop trailers, as is `concatenation-unfinished`.
    package static let extensions =
        "creation,creation-with-upload,creation-defer-length,expiration,checksum,termination,concatenation"
    package static let checksumAlgorithms: [DigestAlgorithm] = [.sha1, .sha256, .sha512]

    /// Returns the fields of a response to OPTIONS that describe the server.
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
    /// The algorithm's name in tus, without a hyphen.
    package var tusName: String { rawValue.filter { $0 != "-" } }
}

/// The value of a creation's `Upload-Concat`.
package enum UploadConcat: Sendable, Equatable {
    case partial
    /// The URLs of the upload's parts, as sent, in order.
    case final([String])

    /// Parses the field's value; returns nil if the value is malformed.
    package init?(_ text: String) {
        if text == "partial" {
            self = .partial
            return
        }
        let mark = "final;"
        guard text.utf8.count <= Self.maximumSize, text.beginsWithBytes(of: mark) else {
            return nil
        }
        // Compares bytes, because a combining mark would hide a space.
        let urls = text.utf8.dropFirst(mark.utf8.count).split { $0 == 0x20 || $0 == 0x09 }
        guard !urls.isEmpty else { return nil }
        self = .final(urls.map { String(decoding: $0, as: UTF8.self) })
    }

    /// The maximum size of the field in bytes, because it is parsed before its client is authorized.
    private static let maximumSize = 64 << 10
}

extension HTTPField.Name {
    /// `Tus-Resumable`, the version in use.
    package static let tusResumable = made("Tus-Resumable")
    /// `Tus-Version`, the versions that a server supports.
    package static let tusVersion = made("Tus-Version")
    /// `Tus-Extension`, the extensions that a server supports.
    package static let tusExtension = made("Tus-Extension")
    /// `Tus-Max-Size`, the maximum size of an upload in bytes.
    package static let tusMaxSize = made("Tus-Max-Size")
    package static let tusChecksumAlgorithm = made("Tus-Checksum-Algorithm")
    /// `Upload-Defer-Length`, 1 if the length is not yet known.
    package static let uploadDeferLength = made("Upload-Defer-Length")
    /// `Upload-Concat`, which marks an upload as a part or as made of parts.
    package static let uploadConcat = made("Upload-Concat")
    /// `Upload-Checksum`, the algorithm and the digest of a request's content.
    package static let uploadChecksum = made("Upload-Checksum")
    /// `Upload-Expires`, the time at which an unfinished upload is removed.
    package static let uploadExpires = made("Upload-Expires")
    /// `Content-Location` (RFC 9110 §8.7).
    static let contentLocation = made("Content-Location")
    /// `Prefer` (RFC 7240).
    package static let prefer = made("Prefer")
}
