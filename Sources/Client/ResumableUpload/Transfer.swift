// The types that uploads and downloads share. Values only.

public import HTTPTypes

/// The types that uploads and downloads share.
public enum Transfer {
    /// An event of a transfer.
    @nonexhaustive
    public enum Event<Token: Sendable & Equatable>: Sendable, Equatable {
        /// The transfer can be resumed with this token, which replaces earlier ones.
        ///
        /// The token of an upload is reported again before the last byte is sent, with `mayBeComplete` set.
        case resumable(Token)
        /// The transfer has progressed.
        case progress(Progress)
        /// The transfer waits before the next attempt, for this time and this reason.
        case waiting(Duration, reason: String)
        /// The transfer starts again from the first byte.
        ///
        /// The upload resource is gone or could not be created, or the server has another representation of the
        /// download.
        case begunAnew(reason: String)
    }

    /// The progress of a transfer, in bytes.
    public struct Progress: Sendable, Equatable {
        /// The number of bytes acknowledged by the server, or of a download written here.
        public var received: Int64
        /// The number of bytes sent, acknowledged or not; of a download, the number received.
        public var sent: Int64
        /// The length of the whole; nil if unknown.
        public var total: Int64?

        /// Creates progress from its parts.
        public init(received: Int64, sent: Int64, total: Int64?) {
            self.received = received
            self.sent = sent
            self.total = total
        }
    }

    /// The final response.
    public struct Answer: Sendable, Equatable {
        /// The status.
        public var status: HTTPResponse.Status
        /// The fields.
        public var fields: HTTPFields
        /// The content, at most `Upload.Options.answerLimit` bytes.
        public var content: [UInt8]
        /// Whether `content` is incomplete.
        public var isCut: Bool
        /// Whether the server accepted the upload but no longer has its response; the status is then not the
        /// application's.
        public var isLost: Bool
        /// The target of a final response of 302 or 303, as an absolute URL; nil for any other response.
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
