// The changing part of a record: what it says; see spoolgate-spool(5), RECORDS.
//
// It is values only; RecordSlot writes them as text and reads them.

import Posix

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
struct RecordState: Sendable, Equatable {
    /// Counts the states written; the higher one is newer, and its parity names its slot.
    var sequence: UInt64 = 0
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
    /// The status of a final response that could not be stored; nil where it was.
    var status: Int?
    /// Where the completing request's fields are in the record file; nil: none are kept.
    var completion: Range<Int64>?
    /// When it was first found whole; nil before.
    var whole: WallTime?
    /// When the queue tries it next; nil: it waits for its client.
    var next: WallTime?
    /// Why it is in `hold`; nil elsewhere.
    var cause: HoldCause?
    /// Where content begins that counts only once it was verified; nil: all of it counts.
    var verified: Int64?

    /// The state of an upload that was just made.
    init(length: Int64? = nil) { self.length = length }

    /// Whether an attempt or an operator has decided that it is held, so that outside `hold` only the
    /// move is missing.
    ///
    /// What is queued again keeps the cause until its next attempt, but it has a time for that.
    var isToBeHeld: Bool { cause != nil && next == nil }

    /// Whether it was decided in `deferred` that it leaves the queue, and it is there still.
    var isDecided: Bool { isToBeHeld || response != nil || status != nil }

    /// Whether the queue was to have it, so that in `incoming` only the move is missing.
    var isToBeDeferred: Bool { whole != nil && next != nil }

    /// Takes a decision on where it goes, and with it back what an earlier one said.
    mutating func decide(_ reason: String?, next: WallTime? = nil, cause: HoldCause? = nil) {
        self.reason = reason
        self.next = next
        self.cause = cause
        response = nil
        status = nil
    }

    /// Says that its content was cut back and is received again.
    mutating func takeUpAgain() {
        decide("its content could not be made durable")
        whole = nil
    }

    /// The state `other` written again.
    init(_ other: RecordState, sequence: UInt64) {
        self = other
        self.sequence = sequence
    }
}
