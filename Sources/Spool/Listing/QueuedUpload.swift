// What a queue run needs: which whole uploads wait for an attempt, and one of them held without
// disturbing anybody.
//
// Looking holds nothing. Invariant: an upload that a request uses is never taken from it.

package import Posix
package import UploadProtocol

/// One upload in `deferred` as a queue run sees it.
package struct QueuedUpload: Sendable, Equatable {
    /// Its identity.
    package var id: UploadID
    /// Its route.
    package var route: String
    /// When the queue is to hold it next: to try it, or to end a move that was begun; nil: it waits
    /// for its client.
    package var next: WallTime?
    /// Since when it is whole.
    package var wholeSince: WallTime?
}

extension Spool {
    /// Calls `body` with every upload in `deferred`, in no order, without holding any.
    ///
    /// One that cannot be read is left out: the request or recovery that finds it tells of it. One that
    /// is then held may turn out to be in another state.
    package func forEachQueued(_ body: (QueuedUpload) -> Void) throws(SpoolError) {
        for shard in layout[.deferred].all {
            let ids = try onDisk { () throws(SystemError) in
                try SpoolLayout.identities(in: shard)
            }
            for id in ids {
                guard let record = try? record(of: id, in: .deferred) else { continue }
                body(
                    QueuedUpload(
                        id: id,
                        route: record.creation.route,
                        next: record.state.isDecided ? clock.now : record.state.next,
                        wholeSince: record.state.whole
                    )
                )
            }
        }
    }

    /// Finds an upload and holds it, unless anybody else does or wants it.
    ///
    /// Requests that come while it is held wait for the verdict.
    ///
    /// - Returns: nil if there is no such upload, or it is in use.
    package func tryLock(_ id: UploadID) throws(SpoolError) -> Upload? {
        guard let lock = locks.tryLock(id) else { return nil }
        do throws(SpoolError) {
            let upload = try find(id, lock, until: nil) { _ in true }
            if upload == nil { lock.unlock() }
            return upload
        } catch {
            lock.unlock()
            if case .busy = error { return nil }
            throw error
        }
    }

    /// What can be seen of one upload, without holding it; nil where there is none.
    package func look(at id: UploadID) throws(SpoolError) -> UploadSummary? {
        // Again, because it may move from a queue to one that was looked at before.
        for queue in SpoolLayout.usable + SpoolLayout.usable + [.corrupt] {
            let found = try onDisk { () throws(SystemError) in
                try summary(of: id, in: queue, knowing: creations)
            }
            if let found { return found }
        }
        return nil
    }

    private func record(
        of id: UploadID,
        in queue: Queue
    ) throws(SystemError) -> LoadedRecord? {
        let name = FileName(id)
        guard let file = try OpenFile.open(name.name, in: layout[queue][name], forWriting: false)
        else { return nil }
        return try record(in: file, of: id)
    }

    private func record(
        in file: OpenFile,
        of id: UploadID
    ) throws(SystemError) -> LoadedRecord? {
        let size = try file.status().size
        // A long queue must not take the place of what requests ask for.
        return try? LoadedRecord.read(file, of: id, size: size, knowing: nil).get()
    }
}

extension Upload {
    /// From here newer requests wait for the verdict instead of asking this holder to let go: what
    /// comes before an attempt has begun.
    package func awaitFinalResponse() { lock.setDelivering() }
}
