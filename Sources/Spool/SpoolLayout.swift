// The directories of a spool and the names in them; see spoolgate-spool(5), LAYOUT.
//
// It opens and makes directories and names an upload's files; what the files mean is not its
// business. Invariant: a file's name is made from an UploadID and from nothing else a client sends.

import Posix
import UploadProtocol

/// An opened spool directory.
///
/// Any thread.
struct SpoolLayout: Sendable {
    /// What the file `format` holds.
    static let format = "spoolgate-spool 1\n"
    /// The first characters of identities; each has a subdirectory in `data` and in every queue.
    static let shards = "0123456789abcdefghijklmnopqrstuv".map(String.init)
    /// The queues an upload can be used in, in the order it is looked for.
    static let usable: [Queue] = [.incoming, .active, .deferred, .delivered, .hold]

    /// The spool directory.
    let root: Directory
    /// Data files.
    let data: Directory
    /// New files on their way to their name, where nameless files are unknown.
    let temporary: Directory
    private let queues: [Queue: Directory]

    /// Opens the spool at `path`; where `creating`, makes it if it is absent or empty.
    init(path: String, creating: Bool, disk: Disk) throws(SpoolError) {
        func attempt<R>(_ body: () throws(SystemError) -> R) throws(SpoolError) -> R {
            do throws(SystemError) { return try body() } catch {
                throw .unusable(directory: path, reason: error.description)
            }
        }
        if creating { try attempt { () throws(SystemError) in try disk.makeDirectory(path: path) } }
        root = try attempt { () throws(SystemError) in try Directory(path: path) }
        let root = self.root
        let format = try attempt { () throws(SystemError) in try Self.text(of: "format", in: root) }
        if let format {
            guard format == Self.format else {
                let shown = format.prefix(40).filter { $0 != "\n" }
                throw .unusable(directory: path, reason: "its format is '\(shown)'")
            }
        } else {
            let strangers = try attempt { () throws(SystemError) in try Self.strangers(in: root) }
            guard creating, strangers.isEmpty else {
                throw .unusable(directory: path, reason: "it holds no file named format")
            }
            try attempt { () throws(SystemError) in try Self.make(in: root, disk: disk) }
        }
        data = try attempt { () throws(SystemError) in try Directory("data", in: root) }
        temporary = try attempt { () throws(SystemError) in try Directory("tmp", in: root) }
        queues = try attempt { () throws(SystemError) in
            var queues: [Queue: Directory] = [:]
            for queue in Queue.allCases { queues[queue] = try Directory(queue.rawValue, in: root) }
            return queues
        }
    }

    /// The directory of a queue.
    subscript(queue: Queue) -> Directory {
        guard let directory = queues[queue] else { preconditionFailure("every queue is opened") }
        return directory
    }

    /// The identities of the files in one subdirectory of `directory`; names that are none, or stand
    /// in the wrong subdirectory, are passed over.
    static func identities(
        in shard: String,
        of directory: Directory
    ) throws(SystemError) -> [UploadID] {
        try directory.names(in: shard).compactMap { name in
            name.hasPrefix(shard) ? UploadID(name) : nil
        }
    }

    /// Puts a small file in the root by one rename, durable but for its name.
    static func replace(
        _ name: String,
        with text: String,
        in root: Directory,
        temporary: Directory,
        disk: Disk
    ) throws(SystemError) {
        let newName = "\(name).\(TemporaryName.next())"
        let file = try disk.create(newName, in: temporary)
        let bytes = Array(text.utf8)
        var position: Int64 = 0
        let path = temporary.path(of: newName)
        try disk.write(bytes.span.bytes, to: file, at: &position, subject: path)
        try disk.sync(file, subject: path)
        try disk.rename(newName, in: temporary, to: name, in: root)
    }

    /// The text of a small file of the root; nil if there is none.
    static func text(of name: String, in root: Directory) throws(SystemError) -> String? {
        guard let file = try root.open(name) else { return nil }
        let bytes = try file.bytes(at: 0, count: 256, subject: root.path(of: name))
        return String(decoding: bytes, as: UTF8.self)
    }

    private static let ours = Queue.allCases.map(\.rawValue) + ["data", "tmp"]

    /// What is in a directory that is to become a spool and does not belong there.
    private static func strangers(in root: Directory) throws(SystemError) -> Set<String> {
        Set(try root.names(in: ".")).subtracting(ours + ["boot", "lost+found"])
    }

    private static func make(in root: Directory, disk: Disk) throws(SystemError) {
        for name in ours {
            try disk.makeDirectory(name, in: root)
            if name == "tmp" { continue }
            let directory = try Directory(name, in: root)
            for shard in shards { try disk.makeDirectory(shard, in: directory) }
            try disk.syncDirectory(".", in: directory)
        }
        let temporary = try Directory("tmp", in: root)
        try replace(
            "boot",
            with: BootIdentity.current() + "\n",
            in: root,
            temporary: temporary,
            disk: disk
        )
        // The file `format` is the commit: without it the next opening makes the rest again.
        try replace("format", with: format, in: root, temporary: temporary, disk: disk)
        try disk.syncDirectory(".", in: root)
    }
}

/// The names of one upload's files.
struct FileName {
    /// `<first character>/<identity>`: below `data` and below a queue.
    let path: String
    /// The subdirectory.
    let shard: String

    /// The names for `id`.
    init(_ id: UploadID) {
        let text = id.description
        shard = String(text.prefix(1))
        path = "\(shard)/\(text)"
    }
}
