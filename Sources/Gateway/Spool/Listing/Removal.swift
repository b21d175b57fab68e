// Removing uploads that were looked at, many at a time.
//
// The calls that make removals durable are made once for all uploads of a batch, which is what removing
// many of them costs. Invariant: an upload is removed only under its lock and only as it was seen, no
// content goes before its record, and what is reported removed does not come back.

import SpoolgatePosix
package import SpoolgateUploadProtocol

extension Spool {
    /// A removal that was begun: its record is gone, its content still there and locked.
    private struct Begun {
        var summary: UploadSummary
        var lock: UploadLock
        /// nil: there is nothing but names.
        var files: UploadFiles?
    }

    /// Removes uploads, but for those in use.
    ///
    /// On return no power cut brings back what was removed. Each takes descriptors until then, so
    /// give some hundreds at most.
    ///
    /// - Parameters:
    ///   - summaries: what was seen of them; one of which anything has changed since stays.
    ///   - note: called with each, and whether it was removed; not if it is in use, changed or gone.
    /// - Throws: `.disk` where one could not be looked at or removed; those that were begun before it
    ///   are removed and noted all the same, if the disk lets them be.
    package func remove(
        _ summaries: [UploadSummary],
        _ note: (UploadSummary, _ isRemoved: Bool) -> Void
    ) throws(SpoolError) {
        var begun: [Begun] = []
        var failure: SpoolError?
        defer {
            for one in begun {
                // The kernel's lock goes before the next request in this process looks.
                one.files?.close()
                one.lock.unlock()
            }
        }
        for summary in summaries {
            do throws(SpoolError) {
                if let one = try begin(summary) { begun.append(one) } else { note(summary, false) }
            } catch {
                failure = error
                break
            }
        }
        try onDisk { () throws(SystemError) in
            try removeContent(of: begun.compactMap(\.files), durably: true)
        }
        for one in begun { note(one.summary, true) }
        if let failure { throw failure }
    }

    /// Removes one upload, as `remove(_:_:)` does; returns whether it was removed.
    package func remove(
        _ id: UploadID,
        ifUnchangedSince summary: UploadSummary
    ) throws(SpoolError) -> Bool {
        var isRemoved = false
        try remove([summary]) { isRemoved = $1 }
        return isRemoved
    }

    private func begin(_ summary: UploadSummary) throws(SpoolError) -> Begun? {
        guard let lock = locks.tryLock(summary.id) else { return nil }
        var begun: Begun?
        defer { if begun == nil { lock.unlock() } }
        if summary.queue == .corrupt {
            if try removeNames(summary.id) { begun = Begun(summary: summary, lock: lock) }
            return begun
        }
        let files = try onDisk { () throws(SystemError) -> UploadFiles? in
            guard let files = try openUnused(summary.id), try files.isUnchanged(since: summary)
            else {
                return nil
            }
            // The record first, so that nothing half is ever found.
            try files.record.remove(of: summary.creation?.client)
            return files
        }
        if let files { begun = Begun(summary: summary, lock: lock, files: files) }
        return begun
    }

    /// Removes the names of an upload that was set aside, whatever they stand for but a directory.
    private func removeNames(_ id: UploadID) throws(SpoolError) -> Bool {
        let name = FileName(id)
        let places = [
            (layout.corrupt, name.record), (layout.directory(of: name), name.data),
        ]
        return try onDisk { () throws(SystemError) in
            guard try layout.corrupt.status(of: name.record) != nil else { return false }
            for (directory, name) in places
            where try directory.status(of: name)?.isDirectory == true { return false }
            for (directory, name) in places { try disk.unlink(name, in: directory) }
            try disk.syncDirectory(layout.directory(of: name))
            try disk.syncDirectory(layout.corrupt)
            return true
        }
    }
}
