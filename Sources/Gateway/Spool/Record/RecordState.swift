// The changing part of a record: what it says; see spoolgate-spool(5), RECORDS.
//
// It is values only; RecordWords writes them as text and reads them. Invariant: it is the whole truth of an
// upload; where a file is says nothing.

import SpoolgatePosix
import SpoolgateUploadProtocol

/// What an upload in `hold` waits for a person for.
package enum HoldCause: String, Sendable, CaseIterable {
    /// It was sent, no answer came, and repeating is not safe.
    case indeterminate
    /// It cannot be delivered: the upstream refused it for good, or its time in the queue is over.
    case failed
    /// An operator holds it.
    case held
}

/// What changes in an upload's record.
///
/// A member that is not given is as in an upload that was just made.
struct RecordState: Sendable, Equatable {
    /// What becomes of an attempt that has no final response.
    enum Fallback: String, Sendable {
        /// It is repeated.
        case deferred
        /// It is held.
        case hold
    }

    /// Counts the states written; the higher one is newer, and its parity names its slot.
    var sequence: UInt64 = 0
    /// What happens to it; never `corrupt`.
    var queue = Queue.incoming
    /// Who wrote it: whose bytes may be trusted that are not durable.
    var writer = ""
    /// The offset that survives a power cut; nil: nothing was ever promised of this upload.
    var durable: Int64?
    /// The length, once known.
    var length: Int64?
    /// Delivery attempts begun.
    var attempts = 0
    /// Why the last attempt did not deliver it.
    var reason: String?
    /// Where the stored response is in the record file.
    var response: Range<Int64>?
    /// The status of a final response that could not be stored; in `deferred` 401, if it waits for other credentials
    /// of its client; else nil.
    var status: Int?
    /// Where the completing request's fields are in the record file; nil: none are kept.
    var completion: Range<Int64>?
    /// When it was first found whole; nil before.
    var whole: WallTime?
    /// When the queue tries it next; nil: it waits for its client, or for nobody.
    var next: WallTime?
    /// Until when it waits for its client; nil where it does not.
    var until: WallTime?
    /// What becomes of the attempt under way; nil where there is none.
    var then: Fallback?
    /// Why it is in `hold`; nil elsewhere.
    var cause: HoldCause?
    /// Where content begins that counts only once it was verified; nil: all of it counts.
    var verified: Int64?
    /// The upload that takes this one as a part; it counts only while that one exists.
    var final: UploadID?

    /// The time of its name in `queue/`; nil where it needs none.
    ///
    /// An attempt keeps the name that it began with.
    var queueTime: WallTime? {
        switch queue {
        case .deferred: next ?? until ?? QueueName.never
        case .active: next ?? until
        case .hold: QueueName.never
        case .incoming, .delivered, .corrupt: nil
        }
    }

    /// Bytes of content that count where there is no file of it.
    var sizeWithoutFile: Int64 { queue == .delivered ? length ?? 0 : 0 }

    /// Has it go to `queue`, and takes back what an earlier decision said.
    mutating func go(to queue: Queue, _ reason: String?) {
        self.queue = queue
        self.reason = reason
        (next, until, then, cause, response, status) = (nil, nil, nil, nil, nil, nil)
    }

    /// Says that its content was cut back and is received again.
    mutating func receiveAgain() {
        go(to: .incoming, "the content could not be made durable")
        whole = nil
    }
}
