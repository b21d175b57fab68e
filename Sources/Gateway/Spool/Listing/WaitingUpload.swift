// Complete uploads that wait for the queue, their client or an operator, found by the names in `queue`.
//
// Each state that needs a name has one; an outdated name is removed by the next listing that reads its record.
// Invariant: listing locks only uploads with outdated names, and reads only the records that its caller needs.

package import SpoolgatePosix
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// A complete upload in `deferred` or `hold`.
package struct WaitingUpload: Sendable, Equatable {
    package var id: UploadID
    package var route: String
    package var naming: UploadNaming
    package var owner: String?
    /// The client against whose limits the upload counts.
    package var client: ClientName
    /// Why the upload is in `hold`, or nil if it is in `deferred`.
    package var cause: HoldCause?
    /// The length of the content in bytes.
    package var size: Int64
    /// The time at which the upload was completed or last requeued.
    package var since: WallTime?
    /// The time of the next attempt, or nil if none is scheduled.
    package var next: WallTime?
    /// The number of delivery attempts started.
    package var attempts: Int
    /// Why the last attempt did not deliver the upload, or why it is in `hold`.
    package var reason: String?
    /// The time in the upload's name in `queue`, or nil if the upload waits for an operator.
    package var nameTime: WallTime?

    init?(_ creation: UploadCreation, _ state: RecordState) {
        guard state.queue == .deferred || state.queue == .hold, let time = state.queueTime else {
            return nil
        }
        id = creation.id
        route = creation.route
        naming = UploadNaming(creation.head)
        owner = creation.principal?.text
        client = creation.client
        cause = state.queue == .hold ? state.cause ?? .indeterminate : nil
        size = state.length ?? 0
        since = state.whole
        next = state.next
        attempts = state.attempts
        reason = state.reason
        nameTime = QueueName(time, creation.id).dueTime
    }
}

extension QueueName {
    fileprivate var dueTime: WallTime? { time == Self.never ? nil : time }
}

extension Upload {
    /// This upload as a waiting upload, or nil if it is not in `deferred` or `hold`.
    package var waiting: WaitingUpload? { WaitingUpload(creation, record.state) }
}

extension Spool {
    /// Calls `body` with the uploads that wait, in no particular order, without locking any.
    ///
    /// This reads the names in `queue` once. An upload with an unreadable record is left out, because the next request
    /// or walk that finds the record reports it.
    ///
    /// - Parameters:
    ///   - isNeeded: called with each upload and the time in its name. The time is nil if the upload waits for an
    ///     operator. If `isNeeded` returns false, the record is not read.
    ///   - body: called with each needed upload that is waiting.
    /// - Throws: `.disk` if the names cannot be read, or an outdated name cannot be removed.
    package func forEachWaiting(
        _ isNeeded: (UploadID, WallTime?) -> Bool,
        _ body: (WaitingUpload) -> Void
    ) throws(SpoolError) {
        let names = try reporting(layout.queue.reader())
        while let text = try reporting(names.next()) {
            guard let name = QueueName(text), isNeeded(name.id, name.dueTime) else { continue }
            guard let file = try? layout.openRecord(FileName(name.id), forWriting: false) else {
                try removeStale(name)
                continue
            }
            // A long queue must not evict the creations that requests need.
            let read = try? LoadedRecord.read(file, of: name.id, knowing: nil).get()
            guard let record = read else { continue }
            if record.state.queueTime != name.time {
                try removeStale(name)
            } else if let waiting = WaitingUpload(record.creation, record.state) {
                body(waiting)
            }
        }
    }

    /// Removes an outdated name, unless its upload is locked.
    private func removeStale(_ name: QueueName) throws(SpoolError) {
        guard let lock = locks.tryLock(name.id) else { return }
        defer { lock.unlock() }
        try onDisk { () throws(SystemError) in
            let record = try layout.openRecord(FileName(name.id))
            if let record {
                guard try record.tryLock(),
                    let state = try? LoadedRecord.read(record, of: name.id, knowing: nil).get()
                        .state,
                    state.queueTime != name.time
                else { return }
            }
            _ = try disk.unlink(name.text, in: layout.queue)
        }
    }

    /// Returns the number of uploads in `corrupt`, including content whose record is missing.
    package func corruptCount() throws(SpoolError) -> Int {
        try reporting(layout.corruptUploads()).count
    }
}
