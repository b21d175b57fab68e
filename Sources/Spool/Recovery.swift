// Start-up: every state that a crash or a power cut can leave becomes a legal one.
//
// It works beside other processes: what is locked is in use and left alone. Invariant: an upload that
// is promised anything keeps its durable offset or ends in `corrupt`; nothing is guessed at.

import Posix
import UploadProtocol

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
    /// Uploads in the spool afterwards, without those in `corrupt`.
    package var uploads = 0
}

extension Spool {
    /// Seconds after which a file in `tmp` is nobody's any more.
    private static let temporaryAge: Int64 = 3600

    /// Brings every state that a crash or a power cut can leave back to a legal one.
    ///
    /// Run it before serving. After a reboot each upload is cut back to its last durable offset. Two
    /// processes that start together recover one after the other.
    ///
    /// - Returns: what it found and did.
    package func recover() throws(SpoolError) -> Recovery {
        let format = try onDisk { () throws(SystemError) in
            try OpenFile.open("format", in: layout.root)
        }
        guard let format else {
            throw .unusable(directory: directory, reason: "it holds no file named format")
        }
        // Held to the end: a second recovery must not take uploads made after the first for old ones.
        try onDisk { () throws(SystemError) in try format.descriptor.lock(subject: format.subject) }
        let (boot, known) = try onDisk { () throws(SystemError) in
            (
                try BootIdentity.current() + "\n",
                try SpoolLayout.text(of: "boot", in: layout.root)
            )
        }
        var recovery = Recovery()
        var seen: Set<UploadID> = []
        for queue in SpoolLayout.usable + [.corrupt] {
            try recoverQueue(queue, afterPowerCut: boot != known, &recovery, &seen)
        }
        try removeOrphans(except: seen, &recovery)
        try removeTemporaries()
        if boot != known {
            try onDisk { () throws(SystemError) in
                try SpoolLayout.replace(
                    "boot",
                    with: boot,
                    in: layout.root,
                    temporary: layout.temporary,
                    disk: disk
                )
            }
        }
        try onDisk { () throws(SystemError) in try room.count() }
        return recovery
    }

    private func recoverQueue(
        _ queue: Queue,
        afterPowerCut: Bool,
        _ recovery: inout Recovery,
        _ seen: inout Set<UploadID>
    ) throws(SpoolError) {
        for shard in SpoolLayout.shards {
            let ids = try onDisk { () throws(SystemError) in
                try SpoolLayout.identities(in: shard, of: layout[queue])
            }
            for id in ids where seen.insert(id).inserted && queue != .corrupt {
                recovery.uploads += 1
                try recoverUpload(id, in: queue, afterPowerCut: afterPowerCut, &recovery)
            }
        }
    }

    private func recoverUpload(
        _ id: UploadID,
        in queue: Queue,
        afterPowerCut: Bool,
        _ recovery: inout Recovery
    ) throws(SpoolError) {
        let opened = try onDisk { () throws(SystemError) in try openUnused(id, in: queue) }
        guard let files = opened else { return }
        do throws(SpoolError) {
            if afterPowerCut,
                try onDisk({ () throws(SystemError) in try files.file.status().size })
                    == 0
            {
                // Its name was durable before its content: nothing can have been promised.
                try removeFiles(of: files)
                recovery.forgotten += 1
                recovery.uploads -= 1
                return
            }
            var found = try load(files, readsResponse: afterPowerCut)
            let repair = Repair(
                queue: queue,
                record: found.record,
                dataSize: found.dataSize,
                responseFault: found.responseFault,
                afterPowerCut: afterPowerCut
            )
            try apply(repair, to: &found)
            recovery.count(repair)
        } catch .corrupt {
            recovery.corrupt += 1
            recovery.uploads -= 1
        }
    }

    /// Opens and locks the files of an upload; nil if it is in use or no longer there.
    func openUnused(_ id: UploadID, in queue: Queue) throws(SystemError) -> UploadFiles? {
        let path = FileName(id).path
        let data = try OpenFile.open(path, in: layout.data)
        if let data, try !data.tryLock() { return nil }
        guard let file = try OpenFile.open(path, in: layout[queue]) else { return nil }
        if data == nil || queue == .delivered {
            guard try file.tryLock(), try file.status().names > 0 else { return nil }
        }
        return UploadFiles(id: id, queue: queue, data: data, file: file)
    }

    /// Removes data files without a record, unless somebody is about to make the record.
    private func removeOrphans(
        except seen: Set<UploadID>,
        _ recovery: inout Recovery
    ) throws(SpoolError) {
        for shard in SpoolLayout.shards {
            let ids = try onDisk { () throws(SystemError) in
                try SpoolLayout.identities(in: shard, of: layout.data)
            }
            for id in ids where !seen.contains(id) {
                let isRemoved = try onDisk { () throws(SystemError) in try removeOrphan(id) }
                if isRemoved { recovery.orphans += 1 }
            }
        }
    }

    private func removeOrphan(_ id: UploadID) throws(SystemError) -> Bool {
        let path = FileName(id).path
        guard let data = try OpenFile.open(path, in: layout.data), try data.tryLock() else {
            return false
        }
        // Only now: until the lock was taken, a creation may have been under way.
        for queue in Queue.allCases where try layout[queue].status(of: path) != nil { return false }
        return try disk.unlink(path, in: layout.data)
    }

    private func removeTemporaries() throws(SpoolError) {
        try onDisk { () throws(SystemError) in
            for name in try layout.temporary.names(in: ".") {
                guard let status = try layout.temporary.status(of: name),
                    WallTime.now.seconds - status.modified.seconds > Self.temporaryAge
                else { continue }
                try disk.unlink(name, in: layout.temporary)
            }
        }
    }
}

extension Recovery {
    fileprivate mutating func count(_ repair: Repair) {
        switch repair {
        case .keep, .finishDelivery, .setAside: break
        case .cutBack: cutBack += 1
        case .putOff, .hold: interrupted += 1
        case .forget:
            forgotten += 1
            uploads -= 1
        }
    }
}
