// The changing part of a record; see spoolgate-spool(5), RECORDS.
//
// Values only; `RecordWords` converts them to text and back. Invariant: the state alone determines what an upload is,
// not the location of its files.

import SpoolgatePosix
import SpoolgateUploadProtocol

/// The reason why an upload in `hold` waits for an operator.
package enum HoldCause: String, Sendable, CaseIterable {
    /// It was sent to the upstream, no response was received, and a retry is not safe.
    case indeterminate
    /// It cannot be delivered: the upstream refused it permanently, or its time in the queue has expired.
    case failed
    /// An operator holds it.
    case held
}

/// The changing properties of an upload.
///
/// The defaults are those of a new upload.
struct RecordState: Sendable, Equatable {
    /// The state after an attempt without a final response.
    enum Fallback: String, Sendable {
        /// The attempt is retried.
        case deferred
        /// The upload is held.
        case hold
    }

    /// The sequence number; the highest is the newest state, and its parity selects the slot.
    var sequence: UInt64 = 0
    /// The state of the upload; never `corrupt`.
    var queue = Queue.incoming
    /// The writer of this state; it may trust bytes that are not durable.
    var writer = ""
    /// The offset that survives a power failure; nil if no offset was ever made durable.
    var durable: Int64?
    var length: Int64?
    var attempts = 0
    var reason: String?
    /// The position of the stored response in the record file.
    var response: Range<Int64>?
    /// The status of a final response that could not be stored, or nil.
    ///
    /// In `deferred`, 401 if the upload waits for other credentials of its client.
    var status: Int?
    /// The position of the completing request's fields in the record file; nil if none are stored.
    var completion: Range<Int64>?
    /// When the upload was completed, or last requeued; nil before.
    var whole: WallTime?
    /// When the next attempt is due; nil if the upload waits for its client or is not queued.
    var next: WallTime?
    /// When the wait for the client ends, if the upload waits for it.
    var until: WallTime?
    /// The state after the current attempt if the process ends; nil without an attempt.
    var then: Fallback?
    var cause: HoldCause?
    /// The start of content that counts only after verification; nil if all content counts.
    var verified: Int64?
    /// The upload that uses this one as a part; ignored if that upload does not exist.
    var final: UploadID?

    /// The time in its name in `queue/`; nil if it needs none.
    ///
    /// An attempt keeps the name with which it began.
    var queueTime: WallTime? {
        switch queue {
        case .deferred: next ?? until ?? QueueName.never
        case .active: next ?? until
        case .hold: QueueName.never
        case .incoming, .delivered, .corrupt: nil
        }
    }

    /// The size of the content if there is no data file.
    var sizeWithoutFile: Int64 { queue == .delivered ? length ?? 0 : 0 }

    /// Moves the upload to `queue` and clears what an earlier decision set.
    mutating func go(to queue: Queue, _ reason: String?) {
        self.queue = queue
        self.reason = reason
        (next, until, then, cause, response, status) = (nil, nil, nil, nil, nil, nil)
    }

    /// Marks the upload as incoming after its content was cut back.
    mutating func receiveAgain() {
        go(to: .incoming, "the content could not be made durable")
        whole = nil
    }
}
