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
        recoverUploads(&pass, note)
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

    /// Makes all uploads legal, and removes data files that belong to none.
    private func recoverUploads(
        _ pass: inout RecoveryPass,
        _ note: (Recovery.Finding) -> Void
    ) {
        let queues = Self.recoveryOrder + [.corrupt]
        layout.walk(
            queues.map { layout[$0] } + [layout.data],
            unread: { shard, error in
                pass.recovery.failed += 1
                pass.leave(shard: shard.name)
                note(.leftAlone(nil, failure(error)))
            },
            { id, place in
                let isNew = pass.seen.insert(id).inserted
                guard isNew, place != queues.count - 1 else { return }
                do throws(SpoolError) {
                    if place < queues.count {
                        try recoverUpload(id, in: queues[place], &pass, note)
                    } else if !pass.failedShards.contains(FileName(id).shard) {
                        let isRemoved = try onDisk { () throws(SystemError) in
                            try removeOrphan(id)
                        }
                        if isRemoved { pass.recovery.orphans += 1 }
                    }
                } catch .corrupt(_, let reason) {
                    pass.recovery.corrupt += 1
                    pass.recovery.uploads -= 1
                    note(.setAside(id, reason: reason))
                } catch {
                    pass.recovery.failed += 1
                    if place < queues.count { pass.leave(id) }
                    note(.leftAlone(id, error))
                }
            }
        )
    }

    /// Makes one upload legal.
    private func recoverUpload(
        _ id: UploadID,
        in queue: Queue,
        _ pass: inout RecoveryPass,
        _ note: (Recovery.Finding) -> Void
    ) throws(SpoolError) {
        pass.recovery.uploads += 1
        let isAfterPowerCut = pass.isAfterPowerCut(id)
        let opened = try openSound(id) { () throws(SystemError) in
            try openUnused(id, in: queue)
        }
        guard let files = opened else { return }
        if isAfterPowerCut { try files.removeOtherNames() }
        if isAfterPowerCut, try files.isUnwritten() {
            // Its name was durable before its content: nothing can have been promised.
            try files.remove()
            return pass.recovery.count(.forget)
        }
        let repair = try files.repair(try files.read(), afterPowerCut: isAfterPowerCut)
        pass.recovery.count(repair)
        if repair == .hold { note(.held(id)) }
    }

    /// Opens and locks the files of an upload; nil if it is in use or no longer there.
    func openUnused(_ id: UploadID, in queue: Queue) throws(SystemError) -> UploadFiles? {
        let name = FileName(id)
        let data = try layout.data.open(name)
        if let data, try !data.tryLock() { return nil }
        guard let record = try layout[queue].open(name) else { return nil }
        if data == nil || queue == .delivered {
            guard try record.tryLock(), try record.status().names > 0 else { return nil }
        }
        return UploadFiles(of: id, in: queue, of: self, data: data, record: record)
    }

    /// Opens files of an upload; sets it aside where one of them is something else than a file.
    ///
    /// - Throws: `.corrupt` then, if it has a record.
    func openSound<R>(_ id: UploadID, _ body: () throws(SystemError) -> R?) throws(SpoolError) -> R?
    {
        do throws(SystemError) { return try body() } catch {
            guard error.isNotRegular else { throw failure(error) }
            let name = FileName(id)
            // A move touches the name alone, whatever it stands for. It has no lock that would mean
            // anything, and nobody can use it.
            for queue in SpoolLayout.usable {
                let isMoved = try onDisk { () throws(SystemError) in
                    guard try layout[queue].status(of: name) != nil else { return false }
                    try layout.move(name, from: queue, to: .corrupt, disk)
                    return true
                }
                if isMoved { throw .corrupt(id, reason: "\(error.subject) is no regular file") }
            }
            return nil
        }
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

    func isAfterPowerCut(_ id: UploadID) -> Bool {
        isAfterPowerCut || before.ids.contains(id) || before.shards.contains(FileName(id).shard)
    }

    mutating func leave(_ id: UploadID) {
        if isAfterPowerCut(id) { left.ids.insert(id) }
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
