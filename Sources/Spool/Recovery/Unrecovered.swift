// What a recovery after a power cut could not look at: the file `unrecovered`.
//
// `boot` says once for the whole spool that the power cut was dealt with; this file says for which
// uploads it was not, so that nobody later takes bytes for received that the power cut left.
// Invariant: it is written before `boot`, and an upload is struck off before anything is added to it.

import Posix
import UploadProtocol

/// Uploads and subdirectories that are still to be judged as after a power cut.
struct Unrecovered: Sendable, Equatable {
    /// Single uploads.
    var ids: Set<UploadID> = []
    /// The first characters of identities of which a subdirectory could not be read.
    var shards: Set<String> = []

    private static let name = "unrecovered"
    /// A disk that fails more often than this is not fit to serve from.
    private static let limit = 1000

    /// Reads the list; empty where there is no file.
    static func read(in root: Directory) throws(SystemError) -> Unrecovered {
        var unrecovered = Unrecovered()
        guard let text = try SpoolLayout.text(of: name, in: root, limit: 64 << 10) else {
            return unrecovered
        }
        for line in text.split(separator: "\n") {
            if let id = UploadID(line) {
                unrecovered.ids.insert(id)
            } else if SpoolLayout.shards.contains(String(line)) {
                unrecovered.shards.insert(String(line))
            }
        }
        return unrecovered
    }

    /// Writes the list in place of the one before, durable but for its name; an empty one is no file.
    func write(in layout: SpoolLayout, disk: Disk) throws(SystemError) {
        let lines = shards.sorted() + ids.map(\.description).sorted()
        guard !lines.isEmpty else {
            try disk.unlink(Self.name, in: layout.root)
            return
        }
        guard lines.count <= Self.limit else {
            throw SystemError(
                call: "recovery of more than \(Self.limit) uploads below",
                subject: layout.root.path,
                errno: SystemError.lost
            )
        }
        try SpoolLayout.replace(
            Self.name,
            with: lines.map { $0 + "\n" }.joined(),
            in: layout.root,
            temporary: layout.temporary,
            disk: disk
        )
    }
}

extension Spool {
    /// Refuses a spool that no recovery has looked at since the machine was started.
    ///
    /// For a process that changes uploads and runs no recovery: what a power cut left is not to be taken
    /// for what was received. Call it before any upload is locked.
    ///
    /// - Throws: `.unusable` then; `.disk` or `.bootUnknown` where it cannot be known.
    package func requireRecovered() throws(SpoolError) {
        let boot = try BootIdentity.current() + "\n"
        let isRecovered = try onDisk { () throws(SystemError) in
            let left = try Unrecovered.read(in: layout.root)
            unrecovered.update { $0 = left }
            return try SpoolLayout.text(of: "boot", in: layout.root) == boot
        }
        guard isRecovered else {
            throw .unusable(
                directory: directory,
                reason: "the machine was started since it was last served from; start the daemon "
                    + "first"
            )
        }
    }

    /// Whether an upload that is locked must be judged as after a power cut.
    ///
    /// - Throws: `.disk` where a subdirectory could not be read, so that nobody knows.
    func isUnrecovered(_ id: UploadID) throws(SpoolError) -> Bool {
        let name = FileName(id)
        let (isListed, isUnread) = unrecovered.update { unrecovered in
            (
                unrecovered.ids.contains(id),
                unrecovered.shards.contains(name.shard)
            )
        }
        guard !isUnread else {
            throw .disk(
                SystemError(
                    call: "recovery of",
                    subject: layout.data[name].path,
                    errno: SystemError.lost
                )
            )
        }
        guard isListed else { return false }
        // Another process may have mended it, and content may have come since.
        return try onDisk { () throws(SystemError) in
            try Unrecovered.read(in: layout.root).ids.contains(id)
        }
    }

    /// Strikes an upload off that was mended.
    func noteRecovered(_ id: UploadID) throws(SpoolError) {
        try onDisk { () throws(SystemError) in
            let lock = try layout.lock()
            defer { withExtendedLifetime(lock) {} }
            var list = try Unrecovered.read(in: layout.root)
            list.ids.remove(id)
            try list.write(in: layout, disk: disk)
        }
        unrecovered.update { _ = $0.ids.remove(id) }
    }
}
