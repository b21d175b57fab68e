// Removes listed uploads in batches, because the calls that make removals durable are the main cost.
//
// Invariant: an upload is removed only under its lock and only if unchanged, content without a record has a name that
// explains it, and a removal that was reported is final.

import SpoolgatePosix
package import SpoolgateUploadProtocol

extension Spool {
    /// An upload whose record has been removed but whose content may still exist.
    private struct Begun {
        var summary: UploadSummary
        var lock: UploadLock
        /// The upload's files, or nil for an upload in `corrupt`, whose names are removed without opening the files.
        var files: UploadFiles?
    }

    /// Removes uploads durably, except those that are in use or have changed since they were listed.
    ///
    /// Each upload keeps file descriptors open until this returns, so pass at most a few hundred. Calls `note`
    /// for each removed upload, and `kept` for each other one.
    ///
    /// - Throws: `.disk` if an upload could not be read or removed. Earlier removals are still completed and noted, if
    ///   the disk allows it.
    package func remove(
        _ summaries: [UploadSummary],
        kept: (UploadSummary) -> Void = { _ in },
        _ note: (UploadSummary) -> Void
    ) throws(SpoolError) {
        var begun: [Begun] = []
        var failure: SpoolError?
        defer {
            for one in begun {
                // The kernel's lock must be released before another request in this process checks it.
                one.files?.close()
                one.lock.unlock()
            }
        }
        for summary in summaries {
            do throws(SpoolError) {
                if let one = try begin(summary) { begun.append(one) } else { kept(summary) }
            } catch {
                failure = error
                break
            }
        }
        try reporting(finishRemovals(of: begun.compactMap(\.files), durably: true))
        for one in begun { note(one.summary) }
        if let failure { throw failure }
    }

    /// Removes one upload; returns false if it is in use, has changed or is missing.
    package func remove(
        _ id: UploadID,
        ifUnchangedSince summary: UploadSummary
    ) throws(SpoolError) -> Bool {
        var isRemoved = false
        try remove([summary]) { _ in isRemoved = true }
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
            try files.beginRemoval(of: summary.creation?.client)
            return files
        }
        if let files { begun = Begun(summary: summary, lock: lock, files: files) }
        return begun
    }

    /// Removes an upload in `corrupt`, its content first, so that no content remains without a record.
    ///
    /// Returns false if neither its record nor its content is in `corrupt`, or one of its names is a directory.
    private func removeNames(_ id: UploadID) throws(SpoolError) -> Bool {
        let name = FileName(id)
        let uploads = layout.directory(of: name)
        return try onDisk { () throws(SystemError) in
            let record = try layout.corrupt.status(of: name.record)
            let orphan = try layout.corrupt.status(of: name.data)
            guard record != nil || orphan != nil, record?.isDirectory != true else { return false }
            if record != nil {
                if try uploads.status(of: name.data)?.isDirectory == true { return false }
                try disk.unlink(name.data, in: uploads)
                try disk.syncDirectory(uploads)
            }
            for name in [name.data, name.record] { try disk.unlink(name, in: layout.corrupt) }
            try disk.syncDirectory(layout.corrupt)
            return true
        }
    }
}
