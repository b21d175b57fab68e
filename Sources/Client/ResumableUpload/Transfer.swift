// The types that uploads and downloads share. Values only.

public import HTTPTypes

/// The types that uploads and downloads share.
public enum Transfer {
    /// An event of a transfer.
    @nonexhaustive
    public enum Event<Token: Sendable & Equatable>: Sendable, Equatable {
        /// The transfer can be resumed with this token, which replaces earlier ones.
        ///
        /// An upload reports the token again before the last byte is sent, with `mayBeComplete` set.
        case resumable(Token)
        /// The transfer has progressed.
        case progress(Progress)
        /// The transfer is waiting before its next attempt.
        case waiting(Duration, reason: String)
        /// The transfer starts again from the first byte.
        ///
        /// The upload resource is gone or could not be created, or the content of the download has changed.
        case begunAnew(reason: String)
    }

    /// The progress of a transfer, in bytes.
    public struct Progress: Sendable, Equatable {
        /// For an upload, the bytes that the server has acknowledged; for a download, the bytes written to the
        /// destination.
        public var received: Int64
        /// For an upload, the bytes sent, acknowledged or not; for a download, the bytes received.
        public var sent: Int64
        /// The length of the content in bytes; nil if unknown.
        public var total: Int64?

        /// Creates progress from its parts.
        public init(received: Int64, sent: Int64, total: Int64?) {
            self.received = received
            self.sent = sent
            self.total = total
        }
    }

    /// The final response.
    public struct Response: Sendable, Equatable {
        /// The status of the response.
        public var status: HTTPResponse.Status
        /// The fields of the response.
        public var fields: HTTPFields
        /// The start of the response's content, at most `Upload.Options.responseLimit` bytes.
        public var content: [UInt8]
        /// Whether `content` is only the start of the response's content.
        public var isCut: Bool
        /// Whether the server accepted the upload but no longer has the application's response.
        ///
        /// If true, `status` is not the status that the application sent.
        public var isLost: Bool
        /// The target of the redirect if the final response is a 302 or 303, as an absolute URL; nil for any other
        /// response.
        public var place: String?

        /// Creates a response from its parts.
        public init(
            status: HTTPResponse.Status,
            fields: HTTPFields = [:],
            content: [UInt8] = [],
            isCut: Bool = false,
            isLost: Bool = false,
            place: String? = nil
        ) {
            self.place = place
            self.status = status
            self.fields = fields
            self.content = content
            self.isCut = isCut
            self.isLost = isLost
        }
    }
}
