// What uploads and downloads have in common: what happens meanwhile, how far they are, and the final response.
//
// Values only.

public import HTTPTypes

/// What uploads and downloads have in common.
public enum Transfer {
    /// What happens during a transfer.
    @nonexhaustive
    public enum Event<Token: Sendable & Equatable>: Sendable, Equatable {
        /// The transfer can be resumed with this token; a later one replaces it.
        ///
        /// That of an upload comes again before the last byte leaves, with `mayBeComplete` set.
        case resumable(Token)
        /// How far it is.
        case progress(Progress)
        /// It waits before it tries again: for how long, and why.
        case waiting(Duration, reason: String)
        /// Everything is sent, or comes, again: the upload resource is gone or could not be had, or what is there is
        /// another representation.
        case begunAnew(reason: String)
    }

    /// How far a transfer is; bytes.
    public struct Progress: Sendable, Equatable {
        /// What the other side has for sure: acknowledged by the server, or written here.
        public var received: Int64
        /// What was sent, acknowledged or not; of a download: what has come.
        public var sent: Int64
        /// The whole; nil: not known.
        public var total: Int64?

        /// Makes progress of its parts.
        public init(received: Int64, sent: Int64, total: Int64?) {
            self.received = received
            self.sent = sent
            self.total = total
        }
    }

    /// The final response.
    public struct Answer: Sendable, Equatable {
        /// Its status.
        public var status: HTTPResponse.Status
        /// Its fields.
        public var fields: HTTPFields
        /// Its content, as far as `Upload.Options.answerLimit` goes.
        public var content: [UInt8]
        /// Whether its content was longer.
        public var isCut: Bool
        /// Whether the server took the upload and has its answer no more; the status is that of an offset retrieval.
        public var isLost: Bool
        /// The place that a final response of 302 or 303 names, as an absolute URL; nil for any other response.
        public var place: String?

        /// Makes an answer of its parts.
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
