// Start-up: every state that a crash or a power cut can leave becomes a legal one.
//
// It works beside other processes: what is locked is in use and left alone. What cannot be read is left
// alone too, and the rest goes on. Invariant: an upload that is promised anything keeps its durable
// offset or ends in `corrupt`; nothing is guessed at.

import Posix
package import UploadProtocol

/// What recovery found.
package struct Recovery: Sendable, Equatable {
    /// Uploads whose offset was cut back to the durable one.
    package var cutBack = 0
    /// Uploads found in `active` and moved to `deferred` or `hold`.
    package var interrupted = 0
    /// Files without a record that were removed.
    package var orphans = 0
    /// Uploads moved to `corrupt`.
    package var corrupt = 0
    /// Uploads removed because a power cut came before anything was promised of them.
    package var forgotten = 0
    /// Uploads and directories that the disk would not let it look at or mend.
    package var failed = 0
    /// Uploads in the spool afterwards, without those in `corrupt`.
    package var uploads = 0

    /// One thing an operator should hear of.
    package enum Finding: Sendable, Equatable {
        /// An upload was moved to `hold`: its attempt was cut short, and must not be repeated.
        case held(UploadID)
        /// An upload was moved to `corrupt`.
        case setAside(UploadID, reason: String)
        /// An upload, or where nil several, could not be looked at or mended, and was left alone.
        case leftAlone(UploadID?, SpoolError)
    }
}

extension Spool {
    /// The queues in the order of what must not be undone: a record that a power cut left in two of
    /// them counts where it is found first.
    private static let recoveryOrder: [Queue] = [
        .delivered, .hold, .active, .deferred, .incoming,
    ]

    /// Brings every state that a crash or a power cut can leave back to a legal one.
    ///
    /// Run it before serving. After a reboot each upload is cut back to its last durable offset. Two
    /// processes that start together recover one after the other. What the disk does not let it mend
    /// is left alone, for the next recovery or request.
    ///
    /// - Parameter note: called with each finding.
    /// - Returns: what it found and did.
    /// - Throws: where the spool is none, or what was left alone after a power cut cannot be noted
    ///   down: then it must not be served from.
    package func recover(
        _ note: (Recovery.Finding) -> Void = { _ in }
    ) throws(SpoolError) -> Recovery {
        // Held to the end: a second recovery must not take uploads made after the first for old ones.
        let lock = try onDisk { () throws(SystemError) in try layout.lock() }
        defer { withExtendedLifetime(lock) {} }
        guard lock != nil else {
            throw .unusable(directory: directory, reason: "it holds no file named format")
        }
        let boot = try BootIdentity.current() + "\n"
        let (known, before) = try onDisk { () throws(SystemError) in
            (
                try SpoolLayout.text(of: "boot", in: layout.root),
                try Unrecovered.read(in: layout.root)
            )
        }
        var pass = RecoveryPass(isAfterPowerCut: boot != known, before: before)
        for queue in Self.recoveryOrder { recoverQueue(queue, &pass, note) }
        for shard in layout[.corrupt].all {
            pass.seen.formUnion(identities(in: shard, &pass, note))
        }
        removeOrphans(&pass, note)
        try? removeTemporaries()
        try onDisk { () throws(SystemError) in
            // Before `boot` says that everything was recovered.
            if pass.left != before { try pass.left.write(in: layout, disk: disk) }
            if boot != known {
                try SpoolLayout.replace(
                    "boot",
                    with: boot,
                    in: layout.root,
                    temporary: layout.temporary,
                    disk: disk
                )
            }
            try room.count()
        }
        noteClock()
        let left = pass.left
        unrecovered.update { $0 = left }
        return pass.recovery
    }

    // MARK: Passing over the spool

    /// The identities in a subdirectory; none where it cannot be read.
    func identities(
        in shard: Directory,
        _ pass: inout RecoveryPass,
        _ note: (Recovery.Finding) -> Void
    ) -> [UploadID] {
        do throws(SystemError) { return try SpoolLayout.identities(in: shard) } catch {
            pass.recovery.failed += 1
            pass.leave(shard: shard.name)
            note(.leftAlone(nil, failure(error)))
            return []
        }
    }

    private func recoverQueue(
        _ queue: Queue,
        _ pass: inout RecoveryPass,
        _ note: (Recovery.Finding) -> Void
    ) {
        for shard in layout[queue].all {
            for id in identities(in: shard, &pass, note) where pass.seen.insert(id).inserted {
                pass.recovery.uploads += 1
                do throws(SpoolError) {
                    let isAfterPowerCut = pass.isAfterPowerCut(id, in: shard.name)
                    let repair = try recoverUpload(
                        id,
                        in: queue,
                        isAfterPowerCut,
                        &pass.recovery
                    )
                    if repair == .hold { note(.held(id)) }
                } catch .corrupt(_, let reason) {
                    pass.recovery.corrupt += 1
                    pass.recovery.uploads -= 1
                    note(.setAside(id, reason: reason))
                } catch {
                    pass.recovery.failed += 1
                    pass.leave(id, in: shard.name)
                    note(.leftAlone(id, error))
                }
            }
        }
    }

    /// Makes one upload legal; returns what was done, or nil where nothing is.
    private func recoverUpload(
        _ id: UploadID,
        in queue: Queue,
        _ isAfterPowerCut: Bool,
        _ recovery: inout Recovery
    ) throws(SpoolError) -> Repair? {
        let opened = try openSound(id) { () throws(SystemError) in
            try openUnused(id, in: queue)
        }
        guard let files = opened else { return nil }
        if isAfterPowerCut { try removeOtherNames(of: files) }
        if isAfterPowerCut, try isUnwritten(files) {
            // Its name was durable before its content: nothing can have been promised.
            try removeFiles(of: files)
            recovery.count(.forget)
            return .forget
        }
        var found = try load(files, readsResponse: isAfterPowerCut)
        let repair = Repair(
            queue: queue,
            record: found.record,
            dataSize: found.dataSize,
            responseFault: found.responseFault,
            afterPowerCut: isAfterPowerCut
        )
        try apply(repair, to: &found)
        if repair != .forget { population.note(found.record.creation, in: found.files.queue) }
        recovery.count(repair)
        return repair
    }

    /// Whether a record lacks parts because it never was durable.
    private func isUnwritten(_ files: UploadFiles) throws(SpoolError) -> Bool {
        try onDisk { () throws(SystemError) in
            let size = try files.file.status().size
            let bytes = try files.file.bytes(at: 0, count: LoadedRecord.size(ofFile: size))
            return !RecordState.mayPromise(in: bytes) && LoadedRecord.isUnwritten(bytes)
        }
    }

    /// Removes the names that moves were to take away, where a power cut left several.
    private func removeOtherNames(of files: UploadFiles) throws(SpoolError) {
        let name = FileName(files.id)
        try onDisk { () throws(SystemError) in
            let record = try files.file.status()
            guard record.names > 1 else { return }
            for queue in Self.recoveryOrder where queue != files.queue {
                let other = try layout[queue][name].status(of: name.name)
                if other?.file == record.file {
                    try disk.unlink(name.name, in: layout[queue][name])
                }
            }
        }
    }

    /// Opens and locks the files of an upload; nil if it is in use or no longer there.
    func openUnused(_ id: UploadID, in queue: Queue) throws(SystemError) -> UploadFiles? {
        let name = FileName(id)
        let data = try OpenFile.open(name.name, in: layout.data[name])
        if let data, try !data.tryLock() { return nil }
        guard let file = try OpenFile.open(name.name, in: layout[queue][name]) else { return nil }
        if data == nil || queue == .delivered {
            guard try file.tryLock(), try file.status().names > 0 else { return nil }
        }
        return UploadFiles(id: id, queue: queue, data: data, file: file)
    }
}

/// What one recovery knows while it runs.
struct RecoveryPass {
    /// Whether the machine was started since the last recovery.
    let isAfterPowerCut: Bool
    /// What earlier recoveries left.
    let before: Unrecovered
    var recovery = Recovery()
    var seen: Set<UploadID> = []
    /// The first characters of identities of which a subdirectory could not be read.
    var failedShards: Set<String> = []
    /// What must be judged as after a power cut still.
    var left = Unrecovered()

    init(isAfterPowerCut: Bool, before: Unrecovered) {
        self.isAfterPowerCut = isAfterPowerCut
        self.before = before
    }

    func isAfterPowerCut(_ id: UploadID, in shard: String) -> Bool {
        isAfterPowerCut || before.ids.contains(id) || before.shards.contains(shard)
    }

    mutating func leave(_ id: UploadID, in shard: String) {
        if isAfterPowerCut(id, in: shard) { left.ids.insert(id) }
    }

    mutating func leave(shard: String) {
        failedShards.insert(shard)
        if isAfterPowerCut || before.shards.contains(shard) { left.shards.insert(shard) }
    }
}

extension Recovery {
    fileprivate mutating func count(_ repair: Repair) {
        switch repair {
        case .keep, .receiveAgain, .finishDeferral, .finishHold, .finishDelivery, .setAside: break
        case .cutBack: cutBack += 1
        case .putOff, .hold: interrupted += 1
        case .forget:
            forgotten += 1
            uploads -= 1
        }
    }
}
