// What is asked of an upload besides its body and its URL.
//
// Values only. The invariant: the defaults are right for a large file over a bad network.

public import HTTPTypes
import SpoolgateUploadProtocol

extension Upload {
    /// What is asked of an upload besides its body and its URL.
    public struct Options: Sendable {
        /// How an upload begins.
        @nonexhaustive
        public enum Creation: Sendable {
            /// An empty request makes the upload resource, then the body is sent to it. Works through any proxy.
            case careful
            /// The body is sent at once, and the server names the upload resource in a 104 response meanwhile. One
            /// round trip less; without the 104 a cut means beginning again.
            case optimistic
            /// One ordinary request. For servers that know nothing of resumable uploads.
            case plain
        }

        /// The method of the request that creates the upload.
        public var method = HTTPRequest.Method.post
        /// Its fields; those about content and representation are sent with it alone, the others with each request.
        public var fields = HTTPFields()
        /// How the upload begins.
        public var creation = Creation.careful
        /// The interop versions of the draft that are spoken.
        public static let interopVersions = Dialect.versions

        /// The interop version that is named, one of `interopVersions`; nil: none, as the RFC will have it, and no 104 is
        /// sent.
        public var interopVersion: Int? = interopVersions.upperBound
        /// A body known to be smaller is sent by one ordinary request; bytes.
        ///
        /// 0: none is, also no empty one.
        public var plainBelow: Int64 = 1 << 20
        /// Most bytes of content in one request, at least 64 KiB; nil: as many as the server takes.
        ///
        /// For proxies that limit the content of a request. A larger body begins as `creation` says, and `plain` knows no
        /// such limit. Without it half as many are sent once a 413 came that says nothing of an upload.
        public var maximumAppend: Int64?
        /// Most bytes of a stream in memory: those that the server has not acknowledged; at least 64 KiB.
        ///
        /// A server that reports what it has received releases them while more is sent. Otherwise an append has half of
        /// them, and waits for its answer.
        public var window = 32 << 20
        /// Most bytes kept of the answer's content.
        public var answerLimit = 64 << 10
        /// Whether the upload resource may be of another origin, which then sees fields and credentials.
        public var allowsOtherOrigin = false
        /// How the server is reached.
        public var connection = Transfer.Connection()

        /// The defaults.
        public init() {}
    }
}
