// What a person recognizes an upload by, small enough to be kept for many of them.

package import HTTPTypes
package import SpoolgateUploadProtocol

/// The path of a creation and the fields that may name its file.
package struct UploadNaming: Sendable, Equatable {
    /// The path, as sent; a long one is cut.
    package let path: String
    /// Those of `Content-Disposition` and `Upload-Metadata` that are short.
    package let fields: HTTPFields

    private static let longestPath = 512
    private static let longestField = 1_024

    /// Takes from a creation's head what names its upload.
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
