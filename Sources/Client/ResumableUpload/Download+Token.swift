// The token that resumes a download, in any process.
//
// Values only. The invariant: a token has no credentials, and its text can be read back.

import SpoolgateTextFormats

extension Download {
    /// The data that a later run needs to resume a download.
    public struct Token: Codable, Sendable, Equatable {
        /// The absolute URL of the download.
        public var url: String
        /// The number of bytes received.
        public var offset: Int64
        /// The validator of the representation: its strong entity tag or its `Last-Modified` date.
        ///
        /// A date is used only if `date` is at least 60 seconds later, because two representations may otherwise have
        /// the same date.
        public var validator: String
        /// The representation's `Last-Modified` if `validator` is an entity tag; nil if unknown.
        public var lastModified: String?
        /// The `Date` of the response with the validator; nil if unknown.
        public var date: String?
        /// The length of the whole representation in bytes; nil if unknown.
        public var total: Int64?
        /// The value of the representation's `Repr-Digest`; nil if unknown.
        public var digest: String?
        /// A digest of the file's last bytes before `offset`; nil if unknown.
        public var tail: String?

        /// Creates a token from its parts.
        public init(
            url: String,
            offset: Int64,
            validator: String,
            lastModified: String? = nil,
            date: String? = nil,
            total: Int64? = nil,
            digest: String? = nil,
            tail: String? = nil
        ) {
            self.url = url
            self.offset = offset
            self.validator = validator
            self.lastModified = lastModified
            self.date = date
            self.total = total
            self.digest = digest
            self.tail = tail
        }

        /// The token as one line of ASCII, without a line end.
        public var text: String {
            TokenText.write(
                "download",
                [
                    ("url", url), ("offset", String(offset)), ("validator", validator),
                    ("last-modified", lastModified), ("date", date),
                    ("total", total.map { String($0) }), ("digest", digest), ("tail", tail),
                ]
            )
        }

        /// Reads the `text` of a token; nil for any other text.
        public init?(_ text: String) {
            guard let parts = TokenText.read("download", text), let url = parts["url"],
                URLText(url) != nil, let offset = parts["offset"].flatMap({ Int64(digits: $0) }),
                let validator = parts["validator"],
                let total = TokenText.number(parts["total"])
            else { return nil }
            self.init(
                url: url,
                offset: offset,
                validator: validator,
                lastModified: parts["last-modified"],
                date: parts["date"],
                total: total,
                digest: parts["digest"],
                tail: parts["tail"]
            )
        }
    }
}
