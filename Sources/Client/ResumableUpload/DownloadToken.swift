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
        ///
        /// A date counts only beside a `date` that is a minute later: by itself it may be that of two representations.
        public var validator: String
        /// The representation's `Last-Modified` beside an entity tag; nil: not known.
        public var lastModified: String?
        /// The `Date` of the response that the validator is from; nil: not known.
        public var date: String?
        /// Bytes of the whole; nil: not known.
        public var total: Int64?
        /// The value of the representation's `Repr-Digest`; nil: not known.
        public var digest: String?
        /// What the file's last bytes before `offset` are recognised by; nil: not known.
        public var tail: String?

        /// Makes a token of its parts.
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

        /// The token as one line of ASCII without a line end.
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

        /// Reads a text that `text` gave; nil for anything else.
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
