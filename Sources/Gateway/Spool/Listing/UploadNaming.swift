// The path and the file name of an upload, small enough to be kept for many uploads.

package import HTTPTypes
package import SpoolgateUploadProtocol

/// The path of the creating request, and the fields that may name the file.
package struct UploadNaming: Sendable, Equatable {
    /// The path as received; a long path is truncated.
    package let path: String
    /// The fields `Content-Disposition` and `Upload-Metadata`, unless they are long.
    package let fields: HTTPFields

    private static let longestPath = 512
    private static let longestField = 1_024

    /// Copies the path and the fields from the request that created the upload.
    package init(_ head: RequestHead) {
        path = String(decoding: head.path.utf8.prefix(Self.longestPath), as: UTF8.self)
        var fields = HTTPFields()
        for name in [.contentDisposition, .uploadMetadata] as [HTTPField.Name] {
            if let value = head.fields[name], value.utf8.count <= Self.longestField {
                fields[name] = value
            }
        }
        self.fields = fields
    }
}
