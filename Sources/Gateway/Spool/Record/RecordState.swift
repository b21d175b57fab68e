// The changing part of a record; see spoolgate-spool(5), RECORDS.
//
// Invariant: the state alone determines what an upload is, not the location of its files.

import SpoolgatePosix
import SpoolgateUploadProtocol

/// Why an upload in `hold` waits for an operator.
package enum HoldCause: String, Sendable, CaseIterable {
    /// The upstream sent no response, and a retry could deliver the upload twice.
    case indeterminate
    /// The upstream refused the upload permanently, or the upload's lifetime in the queue has expired.
    case failed
    /// An operator has put the upload on hold.
    case held
}

/// The changing properties of an upload; the defaults are those of a new one.
struct RecordState: Sendable, Equatable {
    /// The queue of an upload after its attempt was interrupted.
    enum Fallback: String, Sendable {
        case deferred
        case hold
    }

    /// The state with the highest number is the newest; the parity selects the slot.
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
    /// The position of the stored response in the record file, or nil if no response is stored.
    var response: Range<Int64>?
    /// The status of a final response that could not be stored, otherwise nil.
    ///
    /// In `deferred`, 401 means that the upload waits for other credentials from its client.
    var status: Int?
    /// The position of the completing request's fields in the record file, or nil if the fields are not stored.
    var completion: Range<Int64>?
    /// The time of the completion or the last requeue, or nil if the upload is incomplete.
    var whole: WallTime?
    /// The time of the next attempt, or nil if the upload waits for its client or is not queued.
    var next: WallTime?
    /// The time until which the upload waits for its client, or nil if the upload is not waiting.
    var until: WallTime?
    /// The upload's next queue if the process ends during the current attempt.
    ///
    /// Outside an attempt, `deferred` means that the upstream may have processed an earlier one; otherwise nil.
    var then: Fallback?
    var cause: HoldCause?
    /// The offset after which content counts only once it has been verified, or nil if all content counts.
    var verified: Int64?
    /// The time at which the client received 202 (Accepted), or nil if it did not.
    var accepted: WallTime?
    /// The upload into which this one is concatenated as a part (tus); ignored if it does not exist.
    var final: UploadID?

    /// The time in the upload's name in `queue/`, or nil if the upload needs no name.
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

    /// The size of the content in bytes if there is no data file.
    var sizeWithoutFile: Int64 { queue == .delivered ? length ?? 0 : 0 }

    /// Moves the upload to a queue, and clears everything that belongs to an earlier attempt or hold.
    mutating func go(to queue: Queue, _ reason: String?) {
        self.queue = queue
        self.reason = reason
        (next, until, then, cause, response, status) = (nil, nil, nil, nil, nil, nil)
    }

    /// Makes the upload incomplete again, after content that was not durable has been removed.
    mutating func receiveAgain() {
        go(to: .incoming, "the content could not be made durable")
        (whole, accepted) = (nil, nil)
    }
}
