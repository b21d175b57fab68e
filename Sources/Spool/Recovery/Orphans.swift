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
        for shard in layout.data.all {
            let ids = try onDisk { () throws(SystemError) in
                try SpoolLayout.identities(in: shard)
            }
            for id in ids {
                let removed = try onDisk { () throws(SystemError) in
                    guard let status = try shard.status(of: id.description), status.isRegular,
                        status.modified <= limit,
                        try removeOrphan(id, isDryRun: isDryRun)
                    else { return nil as FileStatus? }
                    return status
                }
                if let removed { note(id, removed) }
            }
        }
    }

    /// Removes data files without a record that a recovery has not seen.
    func removeOrphans(_ pass: inout RecoveryPass, _ note: (Recovery.Finding) -> Void) {
        for shard in layout.data.all where !pass.failedShards.contains(shard.name) {
            for id in identities(in: shard, &pass, note) where !pass.seen.contains(id) {
                do throws(SystemError) {
                    if try removeOrphan(id) { pass.recovery.orphans += 1 }
                } catch {
                    pass.recovery.failed += 1
                    note(.leftAlone(id, failure(error)))
                }
            }
        }
    }

    private func removeOrphan(_ id: UploadID, isDryRun: Bool = false) throws(SystemError) -> Bool {
        let name = FileName(id)
        let directory = layout.data[name]
        if try hasRecord(name) { return false }
        guard let data = try OpenFile.open(name.name, in: directory), try data.tryLock() else {
            return false
        }
        // Again: until the lock was taken, a creation may have been under way.
        if try hasRecord(name) { return false }
        if isDryRun { return true }
        let size = try data.status().size
        let isRemoved = try disk.unlink(name.name, in: directory)
        if isRemoved { room.giveBack(size) }
        return isRemoved
    }

    private func hasRecord(_ name: FileName) throws(SystemError) -> Bool {
        for queue in Queue.allCases where try layout[queue][name].status(of: name.name) != nil {
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
