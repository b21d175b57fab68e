// The token that resumes an upload, in any process.
//
// Values only. The invariant: the text of a token can be read back.

import SpoolgateTextFormats

extension Upload {
    /// The data that a later run needs to resume an upload.
    ///
    /// The token has no credentials. If the server requires none, anyone with the token can access the upload, so keep
    /// the token secret.
    ///
    /// ```swift
    /// let text = token.text
    /// let again = Upload.Token(text)
    /// ```
    public struct Token: Codable, Sendable, Equatable {
        /// The absolute URL of the upload resource.
        public var url: String
        /// The absolute URL to which the upload was sent.
        public var target: String
        /// The number of bytes of the body; nil while unknown.
        public var length: Int64?
        /// The interop version that the server accepted; nil if none is named.
        public var interopVersion: Int?
        /// Identifies a file by size, modification time and inode number; nil for any other body.
        public var fingerprint: String?
        /// Whether the last byte may have been sent, in which case the server may have accepted the upload.
        public var mayBeComplete: Bool

        /// Creates a token from its parts.
        public init(
            url: String,
            target: String,
            length: Int64? = nil,
            interopVersion: Int? = Upload.Options.interopVersions.upperBound,
            fingerprint: String? = nil,
            mayBeComplete: Bool = false
        ) {
            self.url = url
            self.target = target
            self.length = length
            self.interopVersion = interopVersion
            self.fingerprint = fingerprint
            self.mayBeComplete = mayBeComplete
        }

        /// The token as one line of ASCII, without a line end.
        public var text: String {
            TokenText.write(
                "upload",
                [
                    ("url", url), ("target", target), ("length", length.map { String($0) }),
                    ("version", interopVersion.map { String($0) }), ("fingerprint", fingerprint),
                    ("complete", mayBeComplete ? "maybe" : nil),
                ]
            )
        }

        /// Reads the `text` of a token; nil for any other text.
        public init?(_ text: String) {
            guard let parts = TokenText.read("upload", text), let url = parts["url"],
                let target = parts["target"], URLText(url) != nil, URLText(target) != nil,
                let length = TokenText.number(parts["length"]),
                let version = TokenText.number(parts["version"])
            else { return nil }
            self.init(
                url: url,
                target: target,
                length: length,
                interopVersion: version.flatMap { Int(exactly: $0) },
                fingerprint: parts["fingerprint"],
                mayBeComplete: parts["complete"] != nil
            )
        }
    }
}
