// Files that belong to no upload: what a creation or a removal that was cut short leaves.
//
// Invariant: a data file is removed only under its lock, and only after nobody can be about to make
// its record any more.

package import Posix
package import UploadProtocol

extension Spool {
    /// Seconds after which a file in `tmp` is nobody's any more.
    private static let temporaryAge: Int64 = 3600

    /// Removes data files without a record, while others work in the spool.
    ///
    /// - Parameters:
    ///   - limit: only those whose content has not changed since.
    ///   - isDryRun: whether they are only to be told of.
    ///   - note: called with each.
    /// - Throws: `.disk` where the spool could not be looked at, or one could not be removed.
    package func removeOrphans(
        unchangedSince limit: WallTime,
        isDryRun: Bool,
        _ note: (UploadID, FileStatus) -> Void
    ) throws(SpoolError) {
        try walk([layout.data]) { (id, _) throws(SpoolError) in
            let removed = try onDisk { () throws(SystemError) -> FileStatus? in
                guard let status = try layout.data.status(of: FileName(id)), status.isRegular,
                    status.modified <= limit,
                    try removeOrphan(id, isDryRun: isDryRun)
                else { return nil }
                return status
            }
            if let removed { note(id, removed) }
        }
    }

    /// Removes a data file without a record that nobody is about to make; returns whether it did.
    func removeOrphan(_ id: UploadID, isDryRun: Bool = false) throws(SystemError) -> Bool {
        let name = FileName(id)
        if try hasRecord(name) { return false }
        guard let data = try layout.data.open(name), try data.tryLock() else { return false }
        // Again: until the lock was taken, a creation may have been under way.
        if try hasRecord(name) { return false }
        if isDryRun { return true }
        let size = try data.status().size
        let isRemoved = try disk.unlink(name.name, in: layout.data[name])
        if isRemoved { room.giveBack(size) }
        return isRemoved
    }

    private func hasRecord(_ name: FileName) throws(SystemError) -> Bool {
        for queue in Queue.allCases where try layout[queue].status(of: name) != nil {
            return true
        }
        return false
    }

    /// Removes what a creation left in `tmp`.
    func removeTemporaries() throws(SystemError) {
        for name in try layout.temporary.names() {
            guard let status = try layout.temporary.status(of: name), status.isRegular,
                clock.confirmed.seconds - status.modified.seconds > Self.temporaryAge
            else { continue }
            try disk.unlink(name, in: layout.temporary)
        }
    }
}
