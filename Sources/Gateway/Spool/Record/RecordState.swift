// The changing part of a record; see spoolgate-spool(5), RECORDS.
//
// Values only; `RecordWords` converts them to text and back. Invariant: the state alone determines what an upload is,
// not the location of its files.

import SpoolgatePosix
import SpoolgateUploadProtocol

/// The reason why an upload in `hold` waits for an operator.
package enum HoldCause: String, Sendable, CaseIterable {
    /// The upload was sent to the upstream but got no response, and a retry could deliver it twice.
    case indeterminate
    /// The upload cannot be delivered: the upstream refused it permanently, or its lifetime in the queue has expired.
    case failed
    /// An operator has put the upload on hold.
    case held
}

/// The changing properties of an upload.
///
/// The defaults are those of a new upload.
struct RecordState: Sendable, Equatable {
    /// What becomes of an upload whose attempt was interrupted before a final response.
    enum Fallback: String, Sendable {
        /// The upload is deferred, and the attempt is retried.
        case deferred
        /// The upload is held.
        case hold
    }

    /// The sequence number; the state with the highest number is the newest, and its parity selects the slot.
    var sequence: UInt64 = 0
    /// The queue that the upload is in; never `corrupt`.
    var queue = Queue.incoming
    /// The writer of this state, the only one that may trust bytes that are not durable.
    var writer = ""
    /// The offset that survives a power failure, or nil if no offset was ever made durable.
    var durable: Int64?
    var length: Int64?
    var attempts = 0
    var reason: String?
    /// The position of the stored response in the record file, or nil if none is stored.
    var response: Range<Int64>?
    /// The status of a final response that could not be stored, otherwise nil.
    ///
    /// In `deferred`, 401 means that the upload waits for the client to provide other credentials.
    var status: Int?
    /// The position in the record file of the fields of the request that completed the upload, or nil if none are
    /// stored.
    var completion: Range<Int64>?
    /// The time at which the upload was completed or last requeued, or nil if it is incomplete.
    var whole: WallTime?
    /// The time at which the next attempt is due, or nil if the upload waits for its client or is not queued.
    var next: WallTime?
    /// The time until which the upload waits for its client, or nil if it does not wait for it.
    var until: WallTime?
    /// What becomes of the upload if the process ends during the current attempt, or nil if no attempt is in progress.
    var then: Fallback?
    var cause: HoldCause?
    /// The offset from which on content counts only once it is verified, or nil if all content counts.
    var verified: Int64?
    /// The upload into which this one is concatenated as a part (tus), or nil; ignored if that upload does not exist.
    var final: UploadID?

    /// The time in the upload's name in `queue/`, or nil if it needs no name there.
    ///
    /// During an attempt, the name from before the attempt is kept.
    var queueTime: WallTime? {
        switch queue {
        case .deferred: next ?? until ?? QueueName.never
        case .active: next ?? until
        case .hold: QueueName.never
        case .incoming, .delivered, .corrupt: nil
        }
    }

    /// The size in bytes that the content counts as if there is no data file.
    var sizeWithoutFile: Int64 { queue == .delivered ? length ?? 0 : 0 }

    /// Moves the upload to `queue` and clears everything that belongs to an earlier attempt or hold.
    mutating func go(to queue: Queue, _ reason: String?) {
        self.queue = queue
        self.reason = reason
        (next, until, then, cause, response, status) = (nil, nil, nil, nil, nil, nil)
    }

    /// Moves the upload back to `incoming`, after content that was not durable was cut off.
    mutating func receiveAgain() {
        go(to: .incoming, "the content could not be made durable")
        whole = nil
    }
}
