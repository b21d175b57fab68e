// What is needed to go on with an upload, in this process or in another one.
//
// Values only. The invariant: a token holds no credentials, and its text can be read back.

import SpoolgateTextFormats

extension Upload {
    /// What is needed to go on with an upload later.
    ///
    /// It holds no credentials: `Upload.Options` has them, each time. Who has the token can still find the upload
    /// where the server asks for none, so keep it like a secret.
    ///
    /// ```swift
    /// let text = token.text
    /// let again = Upload.Token(text)
    /// ```
    public struct Token: Codable, Sendable, Equatable {
        /// The upload resource, an absolute URL.
        public var url: String
        /// Where the upload was created, an absolute URL.
        public var target: String
        /// Bytes of the whole body; nil: not known yet.
        public var length: Int64?
        /// The interop version that the server took; nil: none is named.
        public var interopVersion: Int?
        /// What the body is recognised by: size, time of change and number of a file; nil: a stream.
        public var fingerprint: String?
        /// Whether the last byte may have been sent, after which the server may have used the upload.
        public var mayBeComplete: Bool

        /// Makes a token of its parts.
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

        /// The token as one line of ASCII without a line end.
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

        /// Reads a text that `text` gave; nil for anything else.
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
