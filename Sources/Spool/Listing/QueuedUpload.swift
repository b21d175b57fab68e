// What a queue run needs to know: which whole uploads wait for an attempt, by the names in `queue`.
//
// The names are an index: each state that needs one has it, and one that no state needs is removed when its
// time has come. Invariant: looking locks nothing but what such a name is about.

package import Posix
package import UploadProtocol

/// One deferred upload as a queue run sees it.
package struct QueuedUpload: Sendable, Equatable {
    /// Its identity.
    package var id: UploadID
    /// Its route.
    package var route: String
    /// Whose it is.
    package var client: ClientName
    /// When the queue is to try it; nil: it waits for its client.
    package var next: WallTime?
    /// Since when it is whole.
    package var wholeSince: WallTime?
}

extension Spool {
    /// Calls `body` with the deferred uploads that somebody has to look at by a time, in no order, without
    /// locking any.
    ///
    /// One that cannot be read is left out: the request or walk that finds it tells of it. One that
    /// is then locked may turn out to be in another state.
    ///
    /// - Parameters:
    ///   - limit: the time.
    ///   - horizon: the time beyond which no setting puts off an attempt: what lies there waits for its client, or
    ///     was written by a clock that was ahead; nil: that is not looked at.
    ///   - body: called with each.
    /// - Throws: `.disk` where the names cannot be read, or one that is stale not removed.
    package func forEachQueued(
        until limit: WallTime,
        or horizon: WallTime?,
        _ body: (QueuedUpload) -> Void
    ) throws(SpoolError) {
        try forEachName { (name, record) throws(SpoolError) in
            guard name.time <= limit || horizon.map({ name.time > $0 }) ?? false,
                name.time != QueueName.never
            else {
                return
            }
            guard let record = try record() else { return }
            let state = record.state
            guard state.queueTime == name.time else { return try removeStale(name) }
            guard state.queue == .deferred else { return }
            body(
                QueuedUpload(
                    id: name.id,
                    route: record.creation.route,
                    client: record.creation.client,
                    next: state.next,
                    wholeSince: state.whole
                )
            )
        }
    }

    /// Calls `body` with what `hold` keeps for each route: an upload, its route and its bytes; without those that
    /// an operator holds.
    package func forEachHeld(
        step: () -> Void,
        _ body: (_ id: UploadID, _ route: String, _ size: Int64) -> Void
    ) throws(SpoolError) {
        try forEachName { (name, record) throws(SpoolError) in
            step()
            guard name.time == QueueName.never, let record = try record() else { return }
            let state = record.state
            guard state.queueTime == name.time else { return try removeStale(name) }
            guard state.queue == .hold, state.cause != .held else { return }
            body(name.id, record.creation.route, state.length ?? 0)
        }
    }

    /// Calls `body` with each name in `queue`, and with what reads its record: nil where that is gone or cannot be
    /// read.
    func forEachName(
        _ body: (QueueName, _ record: () throws(SpoolError) -> LoadedRecord?) throws(SpoolError) ->
            Void
    ) throws(SpoolError) {
        let names = try onDisk { () throws(SystemError) in try layout.queue.reader() }
        while let text = try onDisk({ () throws(SystemError) in try names.next() }) {
            guard let name = QueueName(text) else { continue }
            try body(name) { () throws(SpoolError) in
                let file = try? layout.openRecord(FileName(name.id), forWriting: false)
                guard let file else {
                    try removeStale(name)
                    return nil
                }
                // A long queue must not take the place of what requests ask for.
                return try? LoadedRecord.read(file, of: name.id, knowing: nil).get()
            }
        }
    }

    /// Removes a name that no state needs, unless that is being changed.
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
}
