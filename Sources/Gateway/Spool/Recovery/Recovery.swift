// After a daemon that did not end in good order: every state that it can have left becomes a legal one.
//
// It works beside serving and beside other processes: what is locked is in use and left alone. What cannot be
// read is left alone too, and the rest goes on; later it comes back to both. It finds only what nobody would come
// for; all else is made legal by the next lock. Invariant: an upload that is promised anything keeps its durable
// offset or ends in `corrupt`; nothing is guessed at.

package import SpoolgatePosix
package import SpoolgateUploadProtocol

/// What a walk through the spool found.
package struct Recovery: Sendable, Equatable {
    /// Uploads that were being delivered when a process died, and are deferred or held now.
    package var interrupted = 0
    /// Files of no upload that were removed: content without a record, and records never written.
    package var orphans = 0
    /// Uploads moved to `corrupt`.
    package var corrupt = 0
    /// Uploads removed because a power cut came before anything was promised of them, or a death before all of
    /// their parts were joined.
    package var forgotten = 0
    /// Uploads and directories that the disk would not let it look at or mend.
    package var failed = 0
    /// Uploads in the spool, without those in `corrupt`.
    package var uploads = 0
    /// The uploads that were locked, or could not be repaired: `recoverAgain(_:_:)` takes them.
    package var skipped: [UploadID] = []

    /// One thing an operator should hear of.
    package enum Finding: Sendable, Equatable {
        /// An upload is held now: its attempt was cut short, and must not be repeated.
        case held(UploadID)
        /// An upload was moved to `corrupt`.
        case setAside(UploadID, reason: String)
        /// An upload, or where nil several, could not be looked at or mended, and was left alone.
        case leftAlone(UploadID?, SpoolError)
    }
}

extension Spool {
    /// Seconds after which a file in `tmp` is nobody's any more.
    private static let temporaryAge: Int64 = 3600

    /// Goes through the spool: makes legal what a death or a power cut has left and nobody would come for,
    /// and counts what there is.
    ///
    /// - Parameters:
    ///   - note: called with each finding.
    ///   - step: called with each upload looked at; the place for a pause.
    /// - Returns: what it found and did.
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
                    note(.leftAlone(nil, failure(error)))
                },
                { found in
                    step()
                    look(at: found, &recovery, &census, note)
                }
            )
            return census
        }
        try? removeTemporaries()
        noteClock()
        if recovery.failed == 0 { forgetDead() }
        return recovery
    }

    /// Looks again at uploads that an earlier look has skipped, and repairs them if it can.
    ///
    /// - Parameters:
    ///   - skipped: the uploads, as `Recovery.skipped` names them.
    ///   - note: called with each finding, but not again with an upload that still cannot be repaired.
    /// - Returns: what it found and did, and what it skipped.
    package func recoverAgain(
        _ skipped: [UploadID],
        _ note: (Recovery.Finding) -> Void = { _ in }
    ) -> Recovery {
        var recovery = Recovery()
        // The room was counted by the walk.
        var census = Census()
        for id in skipped {
            // That it has content costs one lock at most, which finds that nothing is to be removed.
            let found = SpoolLayout.Found(id: id, hasRecord: true, hasData: true)
            look(at: found, &recovery, &census) { finding in
                if case .leftAlone = finding { return }
                note(finding)
            }
        }
        return recovery
    }

    /// Looks at one upload; what stands in the way is noted, never thrown.
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
            recovery.uploads += 1
            recovery.skipped.append(found.id)
        } catch {
            recovery.failed += 1
            recovery.uploads += found.hasRecord ? 1 : 0
            if found.hasRecord { recovery.skipped.append(found.id) }
            note(.leftAlone(found.id, error))
        }
    }

    /// Looks at one upload, and locks it only where something is to be done.
    private func recover(
        _ found: SpoolLayout.Found,
        _ recovery: inout Recovery,
        _ census: inout Census,
        _ note: (Recovery.Finding) -> Void
    ) throws(SpoolError) {
        guard found.hasRecord else {
            if try removeOrphan(found.id) { recovery.orphans += 1 }
            return
        }
        let seen = try onDisk { () throws(SystemError) in
            try layout.census(of: found, readingRecord: true)
        }
        guard let (counted, record) = seen else { return }
        if try isInNeed(record, found) {
            let before = record.flatMap { try? $0.get().state.queue }
            guard let upload = try tryLock(found.id) else {
                // Somebody uses it, or it is gone.
                if isThere(found.id) {
                    recovery.uploads += 1
                    recovery.skipped.append(found.id)
                } else if before == nil {
                    recovery.orphans += 1
                } else {
                    recovery.forgotten += 1
                }
                return
            }
            defer { upload.unlock() }
            try upload.record.restoreName()
            if before == .active {
                recovery.interrupted += 1
                if upload.queue == .hold { note(.held(found.id)) }
            }
        }
        recovery.uploads += 1
        census += counted
    }

    /// Whether nobody may come for an upload that is not as it should be.
    private func isInNeed(
        _ record: Result<LoadedRecord, UnreadableRecord>?,
        _ found: SpoolLayout.Found
    ) throws(SpoolError) -> Bool {
        guard let record else { return true }
        switch record {
        case .failure(let fault): return fault.kind != .newer
        case .success(let loaded):
            let state = loaded.state
            if state.queue == .active { return true }
            if state.queue == .incoming, loaded.creation.kind.isFinal {
                return true
            }
            if state.writer != writer, state.durable == nil { return true }
            if state.queue == .delivered { return found.hasData }
            guard let time = state.queueTime else { return false }
            return try onDisk { () throws(SystemError) in
                try layout.queue.status(of: QueueName(time, found.id).text) == nil
            }
        }
    }

    private func isThere(_ id: UploadID) -> Bool {
        let name = FileName(id)
        return ((try? layout.directory(of: name).status(of: name.record)) ?? nil) != nil
    }

    // MARK: What belongs to no upload

    /// Removes content without a record, while others work in the spool.
    ///
    /// - Parameters:
    ///   - limit: only what has not changed since.
    ///   - isDryRun: whether it is only to be told of.
    ///   - note: called with each.
    /// - Throws: `.disk` where the spool could not be looked at, or one could not be removed.
    package func removeOrphans(
        unchangedSince limit: WallTime,
        isDryRun: Bool,
        _ note: (UploadID, FileStatus) -> Void
    ) throws(SpoolError) {
        try walk { (found) throws(SpoolError) in
            guard !found.hasRecord else { return }
            let name = FileName(found.id)
            let status = try onDisk { () throws(SystemError) in
                try layout.directory(of: name).status(of: name.data)
            }
            guard let status, status.isRegular, status.modified <= limit,
                try removeOrphan(found.id, isDryRun: isDryRun)
            else { return }
            note(found.id, status)
        }
    }

    /// Removes content without a record; returns whether it did.
    ///
    /// A record is made before its content, so nobody can be about to make it; that of an upload that was set
    /// aside keeps its content.
    private func removeOrphan(_ id: UploadID, isDryRun: Bool = false) throws(SpoolError) -> Bool {
        let name = FileName(id)
        return try onDisk { () throws(SystemError) in
            let directory = layout.directory(of: name)
            guard try directory.status(of: name.record) == nil,
                try layout.corrupt.status(of: name.record) == nil,
                let status = try directory.status(of: name.data), status.isRegular
            else { return false }
            if isDryRun { return true }
            let isRemoved = try disk.unlink(name.data, in: directory)
            if isRemoved { room.giveBack(status.size) }
            return isRemoved
        }
    }

    /// Removes what was left in `tmp`.
    private func removeTemporaries() throws(SystemError) {
        for name in try layout.temporary.names() {
            // While content has such a name, its other one may not survive a power cut.
            guard let status = try layout.temporary.status(of: name), status.isRegular,
                status.names <= 1 || !name.hasPrefix(ContentCopy.mark),
                clock.confirmed.seconds - status.modified.seconds > Self.temporaryAge
            else { continue }
            try disk.unlink(name, in: layout.temporary)
        }
    }
}
