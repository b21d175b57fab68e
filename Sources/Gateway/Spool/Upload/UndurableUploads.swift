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
