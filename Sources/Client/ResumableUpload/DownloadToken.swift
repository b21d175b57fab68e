// What is needed to go on with a download, in this process or in another one.
//
// Values only. The invariant: a token holds no credentials, and its text can be read back.

import SpoolgateTextFormats

extension Download {
    /// What is needed to go on with a download later.
    public struct Token: Codable, Sendable, Equatable {
        /// What is downloaded, an absolute URL.
        public var url: String
        /// Bytes that have come.
        public var offset: Int64
        /// What the representation is recognised by: its strong entity tag, or its `Last-Modified` date.
        public var validator: String
        /// What it is verified by, the value of a `Repr-Digest`; nil: it is not.
        public var digest: String?

        /// Makes a token of its parts.
        public init(url: String, offset: Int64, validator: String, digest: String? = nil) {
            self.url = url
            self.offset = offset
            self.validator = validator
            self.digest = digest
        }

        /// The token as one line of ASCII without a line end.
        public var text: String {
            TokenText.write(
                "download",
                [
                    ("url", url), ("offset", String(offset)), ("validator", validator),
                    ("digest", digest),
                ]
            )
        }

        /// Reads a text that `text` gave; nil for anything else.
        public init?(_ text: String) {
            guard let parts = TokenText.read("download", text), let url = parts["url"],
                URLText(url) != nil, let offset = parts["offset"].flatMap({ Int64(digits: $0) }),
                let validator = parts["validator"]
            else { return nil }
            self.init(url: url, offset: offset, validator: validator, digest: parts["digest"])
        }
    }
}
