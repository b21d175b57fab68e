// Makes uploads durable at a clean stop, whatever their promise, so that a restart of the machine, or a move to another
// one, loses none of them.
//
// Invariant: a state says that an offset is durable only after the content before it is.

import SpoolgatePosix
import SpoolgateUploadProtocol

/// The undelivered uploads that no request uses and whose content or creation might not be durable; thread-safe.
///
/// May contain uploads that no longer exist.
final class UndurableUploads: Sendable {
    private let ids = Monitor<Set<UploadID>>([])

    var all: [UploadID] { ids.updateQuietly { Array($0) } }

    func note(_ id: UploadID, isUndurable: Bool) {
        ids.updateQuietly { ids in
            if isUndurable { ids.insert(id) } else { ids.remove(id) }
        }
    }
}

extension Spool {
    /// The number of uploads that are made durable together, limited because each needs two file descriptors.
    private static let batch = 256

    /// Makes the uploads durable that no request uses, also those whose promise does not cover a power failure.
    ///
    /// Call this at a clean stop. On return, each of them survives a restart of the machine and a copy of the spool.
    ///
    /// - Throws: `.disk` if a state could not be written or the file system not be synced; uploads may then be unchanged.
    package func makeAllDurable() throws(SpoolError) {
        // Hosts that share a spool make each upload durable when they release it.
        guard !isShared else { return }
        var rest = undurable.all[...]
        while !rest.isEmpty {
            let ids = rest.prefix(Self.batch)
            rest = rest.dropFirst(Self.batch)
            // An upload that cannot be locked or read stays as after a crash.
            let uploads = ids.compactMap { try? tryLock($0) }
            defer { for upload in uploads { upload.unlock() } }
            guard uploads.contains(where: \.isUndurable) else { continue }
            try onDisk { () throws(SystemError) in try disk.syncFileSystem(of: layout.root) }
            for upload in uploads { try upload.noteDurable() }
            try onDisk { () throws(SystemError) in try disk.syncFileSystem(of: layout.root) }
        }
    }
}

// MARK: Settling files

// The time in which a short file of a shared spool may still grow.
//
// If a host crashes, CephFS releases its locks before it knows the sizes of the host's files, so a file that the host
// had synced is too short for a moment. Invariant: no upload is removed or moved to `corrupt` because of a file's size
// before the upload's time has passed.

/// The uploads of a shared spool with a file that is too short.
///
/// Thread-safe.
final class SettlingUploads: Sendable {
    let time: Duration
    private let ends = Monitor([UploadID: Deadline]())

    /// `time` is how long a file may still grow.
    init(for time: Duration) { self.time = time }

    /// Returns the end of the time in which the upload's files may grow.
    ///
    /// The time starts at the first call.
    func end(for id: UploadID) -> Deadline {
        ends.update { ends in
            let end = ends[id] ?? .after(time)
            ends[id] = end
            return end
        }
    }

    func remove(_ id: UploadID) { ends.update { $0[id] = nil } }
}

// MARK: Synced states

// The states of uploads that this process last made durable.
//
// Another process may have crashed before it synced its states. Invariant: every state in this table is durable; any
// other state may need a sync.

/// A bounded cache of the sequence numbers of durable states; thread-safe.
final class SyncedStates: Sendable {
    /// The maximum number of entries, which take a few megabytes.
    ///
    /// A dropped entry only costs one more sync.
    private static let limit = 1 << 16

    private let sequences = Monitor(RecentTable<UploadID, UInt64>(maximum: limit))

    /// Returns whether the state `sequence` of `id` is known to be durable.
    func contains(_ id: UploadID, _ sequence: UInt64) -> Bool {
        sequences.update { $0[id] == sequence }
    }

    /// Records that the state `sequence` of `id` is durable.
    func note(_ id: UploadID, _ sequence: UInt64) {
        sequences.update { $0[id] = sequence }
    }

    func forget(_ id: UploadID) { sequences.update { $0[id] = nil } }
}
