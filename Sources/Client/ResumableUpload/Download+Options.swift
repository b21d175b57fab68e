// The options of a download. Values only.

public import HTTPTypes

extension Download {
    /// The options of a download.
    public struct Options: Sendable {
        /// The fields of the request; `Range` and `If-Range` are added.
        public var fields = HTTPFields()
        /// Whether the content must match the server's `Repr-Digest` (RFC 9530; sha-256, sha-512).
        ///
        /// If the server sends no such digest, the download fails. A file that does not match is downloaded once more,
        /// and never gets its final name; other destinations have received the content before the mismatch is detected.
        public var verifiesDigest = false
        /// The connection to the server.
        public var connection = Transfer.Connection()

        /// Creates the default options.
        public init() {}
    }
}
