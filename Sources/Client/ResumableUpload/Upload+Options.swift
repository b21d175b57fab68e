// The options of an upload.
//
// Values only. The invariant: the defaults suit a large file over an unreliable network.

public import HTTPTypes
import SpoolgateUploadProtocol

extension Upload {
    /// The options of an upload.
    public struct Options: Sendable {
        /// How an upload begins.
        @nonexhaustive
        public enum Creation: Sendable {
            /// An empty request first creates the upload resource; this works through any proxy.
            case careful
            /// The content is sent at once, and the server names the upload resource in a 104.
            ///
            /// This saves a round trip, but if the 104 is missing, an interrupted upload starts again.
            case optimistic
            /// One ordinary request, for servers without resumable uploads.
            case plain
        }

        /// The method of the request that creates the upload.
        public var method = HTTPRequest.Method.post
        /// The fields of the creation; all except those about content and representation are sent with each request.
        public var fields = HTTPFields()
        /// How the upload begins.
        public var creation = Creation.careful
        /// The supported interop versions of the draft.
        public static let interopVersions = Dialect.versions

        /// The interop version to name, one of `interopVersions`; nil to name none, as in the future RFC.
        ///
        /// If no version is named, servers send no 104.
        public var interopVersion: Int? = interopVersions.upperBound
        /// A body known to be smaller than this number of bytes is sent by one ordinary request.
        ///
        /// If it is 0, no body is, not even an empty one.
        public var plainBelow: Int64 = 1 << 20
        /// The maximum content of one request in bytes, at least 64 KiB; nil for the server's limit.
        ///
        /// Set it for proxies with such a limit. A larger body begins as `creation` says; `plain` ignores the limit. A
        /// 413 without upload fields to an append halves the limit for later requests.
        public var maximumAppend: Int64?
        /// The maximum number of unacknowledged bytes of a stream in memory; at least 64 KiB.
        ///
        /// A server that reports received content releases bytes while more are sent. Otherwise an append has half the
        /// window, and waits for its response.
        public var window = 32 << 20
        /// The maximum number of bytes kept of a response's content.
        public var responseLimit = 64 << 10
        /// Whether the upload resource may have another origin, which then receives fields and credentials.
        public var allowsOtherOrigin = false
        /// The connection to the server.
        public var connection = Transfer.Connection()

        /// Creates the default options.
        public init() {}
    }
}
