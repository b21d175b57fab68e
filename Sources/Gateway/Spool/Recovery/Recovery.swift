// Repairs every state in which the crash of a daemon can have left an upload.
//
// Recovery runs next to requests and other processes. It skips uploads that are locked or cannot be read, and checks
// them again later. Recovery locks only uploads that no client or queue may ask for; the next lock repairs the others.
// Invariant: an upload with a promise keeps its durable offset or ends in `corrupt`; nothing is guessed.

package import SpoolgatePosix
package import SpoolgateUploadProtocol

/// The results of checking and repairing the uploads of a spool.
package struct Recovery: Sendable, Equatable {
    /// The number of uploads that were in delivery when a process crashed, and are now deferred or held.
    package var interrupted = 0
    /// The number of uploads whose removal a crash had interrupted, and of incomplete records, which were removed.
    package var orphans = 0
    /// The number of uploads, and of data files whose record is missing, that were moved to `corrupt`.
    package var corrupt = 0
    /// The number of uploads removed because a power failure came before any offset was durable, or a crash before
    /// their parts were joined.
    package var forgotten = 0
    /// The number of uploads and directories that a disk error kept from being read or repaired.
    package var failed = 0
    /// The number of those directories; only `recover(_:step:)` reads them again.
    package var unread = 0
    /// The number of uploads in the spool, excluding those in `corrupt`.
    package var uploads = 0
    /// The uploads that were locked or could not be repaired; `recoverAgain(after:_:)` looks at them again.
    package var skipped: [UploadID] = []
    /// The number of skipped uploads that may still need this repair, because no other process has made it: their files
    /// may still change, or their records cannot be read.
    package var unsettled = 0

    /// A finding to report to the operator.
    package enum Finding: Sendable, Equatable {
        /// This upload was put on hold, because a retry of its interrupted attempt could deliver it twice.
        case held(UploadID)
        /// This upload, or content whose record is missing, was moved to `corrupt`.
        case setAside(UploadID, reason: String)
        /// This upload could not be read or repaired, and is unchanged. Nil means that a directory of uploads could not
        /// be read.
        case leftAlone(UploadID?, SpoolError)
    }
}

extension Spool {
    /// The age in seconds after which a file in `tmp` is considered abandoned.
    private static let temporaryAge: Int64 = 3600

    /// Repairs, after a crash or power failure, the uploads that no later request may find, and counts all uploads.
    ///
    /// `step` is called once before each upload; it may pause to slow down the recovery.
    package func recover(
        _ note: (Recovery.Finding) -> Void = { _ in },
        step: () -> Void = {}
    ) -> Recovery {
        var recovery = Recovery()
        room.count { () throws(Never) in
            var census = Census()
            layout.walk(
                unread: { directory, error in
                    recovery.failed += 1
                    recovery.unread += 1
                    note(.leftAlone(nil, failure(error)))
                },
                { found in
                    step()
                    look(at: found, &recovery, &census, note)
                }
            )
            census.records += (try? layout.sizeOfCorrupt()) ?? 0
            return census
        }
        try? removeTemporaries()
        noteClock()
        forgetDead(after: recovery)
        return recovery
    }

    /// Checks the uploads that an earlier recovery skipped, and repairs them if possible.
    ///
    /// `note` is called with each finding, but not for an upload that still cannot be repaired.
    ///
    /// - Returns: the results; `skipped` contains the uploads that were skipped again, and `unread` is unchanged.
    package func recoverAgain(
        after earlier: Recovery,
        _ note: (Recovery.Finding) -> Void = { _ in }
    ) -> Recovery {
        var recovery = Recovery()
        (recovery.failed, recovery.unread) = (earlier.unread, earlier.unread)
        // Discarded, because the walk has already counted the spool; the next count has what it could not read.
        var census = Census()
        for id in earlier.skipped {
            guard let found = try? layout.found(id) else {
                recovery.failed += 1
                recovery.skipped.append(id)
                continue
            }
            look(at: found, &recovery, &census) { finding in
                if case .leftAlone = finding { return }
                note(finding)
            }
        }
        forgetDead(after: recovery)
        return recovery
    }

    /// Removes the files of crashed daemons if all uploads were repaired.
    ///
    /// Until then, the files say that content without a readable record may be left by a power failure, and that
    /// another process must continue if this one ends.
    private func forgetDead(after recovery: Recovery) {
        if recovery.failed == 0, recovery.unsettled == 0 { forgetDead() }
    }

    /// Checks one upload and repairs it if necessary; passes errors to `note`.
    private func look(
        at found: SpoolLayout.Found,
        _ recovery: inout Recovery,
        _ census: inout Census,
        _ note: (Recovery.Finding) -> Void
    ) {
        do throws(SpoolError) {
            try recover(found, &recovery, &census, note)
        } catch .corrupt(_, let reason) {
            recovery.corrupt += 1
            note(.setAside(found.id, reason: reason))
        } catch .busy {
            recovery.uploads += found.hasRecord ? 1 : 0
            recovery.skipped.append(found.id)
            recovery.unsettled += 1
        } catch {
            recovery.failed += 1
            recovery.uploads += found.hasRecord ? 1 : 0
            recovery.skipped.append(found.id)
            note(.leftAlone(found.id, error))
        }
    }

    private func recover(
        _ found: SpoolLayout.Found,
        _ recovery: inout Recovery,
        _ census: inout Census,
        _ note: (Recovery.Finding) -> Void
    ) throws(SpoolError) {
        guard found.hasRecord else {
            switch try recoverOrphan(found.id) {
            case .removed: recovery.orphans += 1
            case .setAside: throw .corrupt(found.id, reason: UploadSummary.noRecord)
            case nil: break
            }
            return
        }
        let seen = try reporting(layout.census(of: found, readingRecord: true))
        guard let (counted, record) = seen else { return }
        let isInNeed = try isInNeed(record, found, content: counted.data)
        noteUndurable(record, found, content: counted.data)
        if isInNeed {
            let before = record.flatMap { try? $0.get().state.queue }
            guard let upload = try tryLock(found.id) else {
                if isThere(found.id) {
                    recovery.uploads += 1
                    recovery.skipped.append(found.id)
                    // A process that has locked a readable upload has repaired it.
                    if before == nil || !isLocked(found.id) { recovery.unsettled += 1 }
                } else if before == nil {
                    recovery.orphans += 1
                } else {
                    recovery.forgotten += 1
                }
                return
            }
            defer { upload.unlock() }
            if found.isRemovalBegun {
                try reporting(upload.files.forgetRemoval())
            }
            try upload.record.restoreName()
            if before == .active {
                recovery.interrupted += 1
                if upload.queue == .hold { note(.held(found.id)) }
            }
        }
        recovery.uploads += 1
        census += counted
    }

    /// Returns whether an upload needs a repair that no later request may trigger.
    private func isInNeed(
        _ record: Result<LoadedRecord, UnreadableRecord>?,
        _ found: SpoolLayout.Found,
        content size: Int64
    ) throws(SpoolError) -> Bool {
        guard let record else { return true }
        switch record {
        case .failure(let fault): return fault.kind != .newer
        case .success(let loaded):
            let state = loaded.state
            if state.queue == .active || found.isRemovalBegun { return true }
            if state.queue == .incoming, loaded.creation.kind.isFinal {
                return true
            }
            if state.writer != writer, state.durable == nil { return true }
            if state.queue == .delivered { return found.hasData }
            if size < state.durable ?? 0 { return true }
            guard let time = state.queueTime else { return false }
            return try reporting(layout.queue.status(of: QueueName(time, found.id).text) == nil)
        }
    }

    /// Notes an upload that an earlier process may have left without a durable state, for a clean stop.
    private func noteUndurable(
        _ record: Result<LoadedRecord, UnreadableRecord>?,
        _ found: SpoolLayout.Found,
        content size: Int64
    ) {
        guard !isShared, let state = try? record?.get().state, state.queue != .delivered,
            state.durable != size
        else { return }
        undurable.note(found.id, isUndurable: true)
    }

    /// Notes, for a clean stop, the uploads that an unfinished recovery has not looked at.
    ///
    /// Uploads that cannot be read stay as after a crash.
    func noteUndurableOfDead() {
        guard isAfterDeath else { return }
        layout.walk(unread: { _, _ in }) { found in
            let seen = try? layout.census(of: found, readingRecord: true)
            guard let (counted, record) = seen else { return }
            noteUndurable(record, found, content: counted.data)
        }
    }

    private func isThere(_ id: UploadID) -> Bool {
        let name = FileName(id)
        return ((try? layout.directory(of: name).status(of: name.record)) ?? nil) != nil
    }

    /// Whether another thread or process has locked the upload's record.
    private func isLocked(_ id: UploadID) -> Bool {
        let record = try? layout.openRecord(FileName(id), forWriting: false)
        return (try? record?.descriptor.isLockedElsewhere(subject: record?.subject ?? "")) == true
    }

    // MARK: Files of no upload

    /// What was done with the files of an identity without a record.
    package enum Orphan: Sendable {
        /// A crash had interrupted the removal of the upload; it was completed.
        case removed
        /// Nothing explains why the record is missing; the content was moved to `corrupt`.
        case setAside
    }

    /// Completes interrupted removals, and moves content whose record is missing to `corrupt`; other processes may be
    /// using the spool.
    ///
    /// - Parameters:
    ///   - limit: the time since which content must not have changed to be moved or removed.
    ///   - isDryRun: whether to call `note` without changing anything.
    ///   - note: called with each such file.
    /// - Throws: `.disk` if the spool could not be read, or a file could not be moved or removed.
    package func recoverOrphans(
        unchangedSince limit: WallTime,
        isDryRun: Bool,
        _ note: (UploadID, FileStatus, Orphan) -> Void
    ) throws(SpoolError) {
        try walk { (found) throws(SpoolError) in
            guard !found.hasRecord else { return }
            let name = FileName(found.id)
            let status = try onDisk { () throws(SystemError) in
                try layout.directory(of: name).status(of: found.hasData ? name.data : name.removal)
            }
            guard let status, status.modified <= limit else { return }
            var outcome: Orphan?
            do throws(SpoolError) {
                outcome = try recoverOrphan(found.id, isDryRun: isDryRun)
            } catch {
                guard case .busy = error else { throw error }
            }
            if let outcome, found.hasData { note(found.id, status, outcome) }
        }
    }

    /// Removes or moves the files of an identity without a record; returns nil if they are left as they are.
    ///
    /// A record is created before its data file, so a data file without a record never gets a record later. The data
    /// file of an upload in `corrupt` is kept.
    ///
    /// - Throws: `.busy` if a process uses the content; `.disk`.
    private func recoverOrphan(
        _ id: UploadID,
        isDryRun: Bool = false
    ) throws(SpoolError) -> Orphan? {
        let name = FileName(id)
        let directory = layout.directory(of: name)
        let isExplained: Bool? = try onDisk { () throws(SystemError) in
            guard try directory.status(of: name.record) == nil else { return nil }
            let isRemovalBegun = try directory.status(of: name.removal) != nil
            guard try layout.corrupt.status(of: name.record) == nil else {
                if isRemovalBegun, !isDryRun { try disk.unlink(name.removal, in: directory) }
                return nil
            }
            if isRemovalBegun { return true }
            return try directory.status(of: name.data).map(isLeftByPowerFailure)
        }
        guard let isExplained else { return nil }
        if isExplained {
            if !isDryRun {
                try reporting(completeRemoval(name, in: directory))
            }
            return .removed
        }
        return try setAsideOrphan(id, name, isDryRun: isDryRun) ? .setAside : nil
    }

    /// Whether content can be without its record because of a power failure.
    ///
    /// On btrfs, fdatasync of content keeps its name, even if the record's older name is lost. A restored file, and one
    /// whose record was lost later, is never taken for such content.
    private func isLeftByPowerFailure(_ content: FileStatus) -> Bool {
        isAfterPowerFailure && content.changed <= content.modified
            && content.changed.seconds < clock.offset
    }

    private func completeRemoval(
        _ name: FileName,
        in directory: Directory
    ) throws(SystemError) {
        let size = try directory.status(of: name.data)?.size ?? 0
        if try disk.unlink(name.data, in: directory) { room.giveBack(size) }
        try disk.unlink(name.removal, in: directory)
    }

    /// Moves content without a record to `corrupt`; returns false if there is none, or an earlier one is there.
    private func setAsideOrphan(
        _ id: UploadID,
        _ name: FileName,
        isDryRun: Bool
    ) throws(SpoolError) -> Bool {
        let directory = layout.directory(of: name)
        let file = try onDisk { () throws(SystemError) -> OpenFile? in
            guard try directory.status(of: name.data)?.isRegular == true,
                try layout.corrupt.status(of: name.data) == nil
            else { return nil }
            return try layout.openData(name)
        }
        guard let file else { return false }
        // A process that removes the upload has locked the content.
        guard try reporting(file.tryLock()) else { throw .busy(id) }
        return try onDisk { () throws(SystemError) in
            guard try file.status().names > 0 else { return false }
            if isDryRun { return true }
            // Its retention starts now.
            try disk.touch(file.descriptor, subject: file.subject)
            try disk.rename(name.data, in: directory, to: name.data, in: layout.corrupt)
            return true
        }
    }

    /// Removes abandoned files in `tmp`; their removal is not durable on return.
    ///
    /// - Throws: `.disk` if the directory could not be read, or a file could not be removed.
    package func removeTemporaries() throws(SpoolError) {
        try onDisk { () throws(SystemError) in
            func isCopy(_ name: String) -> Bool { name.hasPrefix(ContentCopy.mark) }
            let names = try layout.temporary.names()
            // The other name of a copy is also in `tmp` if a crash came before the copy replaced the data file.
            for name in names.filter({ !isCopy($0) }) + names.filter(isCopy) {
                // While content has a name in `tmp`, its other name may not survive a power failure.
                guard let status = try layout.temporary.status(of: name), status.isRegular,
                    status.names <= 1 || !isCopy(name),
                    clock.confirmed.seconds - status.modified.seconds > Self.temporaryAge
                else { continue }
                try disk.unlink(name, in: layout.temporary)
            }
        }
    }
}
