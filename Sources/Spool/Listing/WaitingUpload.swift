// The whole uploads that wait, for the queue, their client or an operator, as an operator is shown them.
//
// Invariant: looking locks nothing, and reads no record that is known already.

package import Posix
import TextFormats
package import UploadProtocol

/// One upload in `deferred` or `hold`.
package struct WaitingUpload: Sendable, Equatable {
    /// Its identity.
    package var id: UploadID
    /// Its route.
    package var route: String
    /// Who it belongs to, as far as that is known.
    package var owner: String?
    /// Why it is in `hold`; nil: it is in `deferred`.
    package var cause: HoldCause?
    /// Its bytes.
    package var size: Int64
    /// Since when it is whole.
    package var since: WallTime?
    /// When the queue tries it; nil: it does not.
    package var next: WallTime?
    /// Delivery attempts begun.
    package var attempts: Int
    /// Why the last attempt did not deliver it, or why it is in `hold`.
    package var reason: String?
    /// The time in its name in `queue`.
    package var nameTime: WallTime

    init?(_ creation: UploadCreation, _ state: RecordState) {
        guard state.queue == .deferred || state.queue == .hold, let time = state.queueTime else {
            return nil
        }
        id = creation.id
        route = creation.route
        owner = creation.principal?.text
        cause = state.queue == .hold ? state.cause ?? .indeterminate : nil
        size = state.length ?? 0
        since = state.whole
        next = state.next
        attempts = state.attempts
        reason = state.reason
        nameTime = QueueName(time, creation.id).time
    }
}

extension Upload {
    /// This upload as one that waits; nil where it does not.
    package var waiting: WaitingUpload? { WaitingUpload(creation, files.state) }
}

extension Spool {
    /// Calls `body` with the uploads that wait, in no order.
    ///
    /// One that cannot be read is left out: the request or walk that finds it tells of it.
    ///
    /// - Parameters:
    ///   - isKnown: asked first, with an upload and the time in its name; where it says yes, nothing is read.
    ///   - body: called with each of the others.
    /// - Throws: `.disk` where the names cannot be read.
    package func forEachWaiting(
        isKnown: (UploadID, WallTime) -> Bool,
        _ body: (WaitingUpload) -> Void
    ) throws(SpoolError) {
        try forEachName { (name, record) throws(SpoolError) in
            guard !isKnown(name.id, name.time), let record = try record(),
                record.state.queueTime == name.time,
                let waiting = WaitingUpload(record.creation, record.state)
            else { return }
            body(waiting)
        }
    }

    /// How many records were set aside in `corrupt`.
    package func corruptCount() throws(SpoolError) -> Int {
        try onDisk { () throws(SystemError) in try layout.corrupt.names() }.count
    }
}
