// What a queue run needs to know: which whole uploads wait for an attempt.
//
// Invariant: looking locks nothing.

package import Posix
package import UploadProtocol

/// One upload in `deferred` as a queue run sees it.
package struct QueuedUpload: Sendable, Equatable {
    /// Its identity.
    package var id: UploadID
    /// Its route.
    package var route: String
    /// When the queue is to lock it next: to try it, or to end a move that was begun; nil: it waits
    /// for its client.
    package var next: WallTime?
    /// Since when it is whole.
    package var wholeSince: WallTime?
}

extension Spool {
    /// Calls `body` with every upload in `deferred`, in no order, without locking any.
    ///
    /// One that cannot be read is left out: the request or recovery that finds it tells of it. One that
    /// is then locked may turn out to be in another state.
    package func forEachQueued(_ body: (QueuedUpload) -> Void) throws(SpoolError) {
        try walk([layout[.deferred]]) { (id, _) throws(SpoolError) in
            guard let file = try? layout[.deferred].open(FileName(id), forWriting: false),
                // A long queue must not take the place of what requests ask for.
                let record = try? LoadedRecord.read(file, of: id, knowing: nil).get()
            else { return }
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
