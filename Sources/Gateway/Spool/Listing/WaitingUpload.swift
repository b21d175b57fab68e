// Complete uploads that wait for the queue, their client or an operator, found by the names in `queue`.
//
// The names are an index: each state that needs a name has one. A name that no state needs is removed by the next
// listing that reads its record. Invariant: listing locks only uploads with such a name, and reads only the records
// that its caller needs.

package import SpoolgatePosix
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// One upload in `deferred` or `hold`.
package struct WaitingUpload: Sendable, Equatable {
    /// Its identity.
    package var id: UploadID
    /// Its route.
    package var route: String
    /// Its path and the fields that name its file.
    package var naming: UploadNaming
    /// Its owner, if known.
    package var owner: String?
    /// The client whose limits it counts against.
    package var client: ClientName
    /// Why it is in `hold`; nil if it is in `deferred`.
    package var cause: HoldCause?
    /// Its length in bytes.
    package var size: Int64
    /// The time of its completion.
    package var since: WallTime?
    /// The time of its next attempt; nil if none is scheduled.
    package var next: WallTime?
    /// Delivery attempts begun.
    package var attempts: Int
    /// Why the last attempt did not deliver it, or why it is in `hold`.
    package var reason: String?
    /// The time in its name in `queue`; nil if it waits for an operator.
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
    /// The time; nil if the upload waits for an operator.
    fileprivate var dueTime: WallTime? { time == Self.never ? nil : time }
}

extension Upload {
    /// This upload as a waiting upload; nil if it does not wait.
    package var waiting: WaitingUpload? { WaitingUpload(creation, record.state) }
}

extension Spool {
    /// Calls `body` with the uploads that wait, in no order, after one pass over `queue` and without locking any.
    ///
    /// An upload with an unreadable record is left out: the request or walk that finds it reports it. An upload that is
    /// locked later may be in another state by then.
    ///
    /// - Parameters:
    ///   - isNeeded: called with each upload and the time in its name, nil if it waits for an operator; if it returns
    ///     false, its record is not read and `body` is not called.
    ///   - body: called with each of the other uploads that waits.
    /// - Throws: `.disk` if the names cannot be read, or one that no state needs cannot be removed.
    package func forEachWaiting(
        _ isNeeded: (UploadID, WallTime?) -> Bool,
        _ body: (WaitingUpload) -> Void
    ) throws(SpoolError) {
        let names = try onDisk { () throws(SystemError) in try layout.queue.reader() }
        while let text = try onDisk({ () throws(SystemError) in try names.next() }) {
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

    /// Removes a name that no state needs, unless the upload is locked.
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

    /// Returns the number of records in `corrupt`.
    package func corruptCount() throws(SpoolError) -> Int {
        try onDisk { () throws(SystemError) in try layout.corrupt.names() }.count
    }
}
