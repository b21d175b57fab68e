// What is asked of a download besides its URL.
//
// Values only.

public import HTTPTypes

extension Download {
    /// What is asked of a download besides its URL.
    public struct Options: Sendable {
        /// The request's fields; `Range` and `If-Range` are added.
        public var fields = HTTPFields()
        /// Whether what comes has to be what the server's `Repr-Digest` says (RFC 9530; sha-256, sha-512).
        ///
        /// Where the server tells none, the download is refused. A file that is not right comes once more before it is
        /// given up, and never gets its name; pieces have been handed over by then.
        public var verifiesDigest = false
        /// How the server is reached.
        public var connection = Transfer.Connection()

        /// The defaults.
        public init() {}
    }
}
