// The directories of a spool and the names in them; see spoolgate-spool(5), LAYOUT.
//
// It opens and makes directories and names an upload's files; what the files mean is not its
// business. Invariant: a file's name is made from an UploadID and from nothing else a client sends.

import Posix
import UploadProtocol

/// The subdirectories of `data` or of a queue, one for each first character, held open.
///
/// Any thread.
struct Shards: Sendable {
    /// The directory they are in.
    let root: Directory
    private let directories: [Directory]

    /// Opens the directory `name` of a spool and its subdirectories.
    init(_ name: String, in spool: Directory) throws(SystemError) {
        root = try Directory(name, in: spool)
        var directories: [Directory] = []
        for shard in SpoolLayout.shards { directories.append(try Directory(shard, in: root)) }
        self.directories = directories
    }

    /// The one that has the files of an upload.
    subscript(name: FileName) -> Directory { directories[name.number] }

    /// All of them.
    var all: [Directory] { directories }

    /// Opens the file of an upload; nil if there is none.
    func open(_ name: FileName, forWriting: Bool = true) throws(SystemError) -> OpenFile? {
        try OpenFile.open(name.name, in: self[name], forWriting: forWriting)
    }

    /// What the file system knows of the file of an upload; nil if there is none.
    func status(of name: FileName) throws(SystemError) -> FileStatus? {
        try self[name].status(of: name.name)
    }
}

/// An opened spool directory.
///
/// Every directory in it is held open, so that no call walks a path: whatever a name is replaced by
/// later, a symbolic link too, nothing outside the spool is touched. Any thread.
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
    let data: Shards
    /// New files on their way to their name, where nameless files are unknown.
    let temporary: Directory
    private let queues: [Queue: Shards]

    /// Opens the spool at `path`; where `creating`, makes it if it is absent or empty.
    init(path: String, creating: Bool, disk: Disk) throws(SpoolError) {
        func unusable(_ reason: String) -> SpoolError {
            .unusable(directory: path, reason: reason)
        }
        do {
            if creating { try disk.makeDirectory(path: path) }
            let root = try Directory(path: path)
            let format = try Self.text(of: "format", in: root)
            if let format {
                guard format == Self.format else { throw unusable(Self.sentence(of: format)) }
            } else {
                guard creating, try Self.strangers(in: root).isEmpty else {
                    throw unusable("it holds no file named format")
                }
                // Nothing was in it that others could have read or put there.
                if try root.status().isOpenToOthers { try disk.makePrivate(root) }
                // Its own name. Where the parent is not for us to read, somebody else made it.
                if let parent = try? Directory("..", in: root) { try disk.syncDirectory(parent) }
                try Self.make(in: root, boot: BootIdentity.current(), disk: disk)
            }
            self.root = root
            data = try Shards("data", in: root)
            temporary = try Directory("tmp", in: root)
            var queues: [Queue: Shards] = [:]
            for queue in Queue.allCases { queues[queue] = try Shards(queue.rawValue, in: root) }
            self.queues = queues
            if let reason = try Self.strangeness(of: directories) { throw unusable(reason) }
        } catch let error as SpoolError {
            throw error
        } catch {
            throw unusable("\(error)")
        }
    }

    /// The queue's subdirectories.
    subscript(queue: Queue) -> Shards {
        guard let shards = queues[queue] else { preconditionFailure("every queue is opened") }
        return shards
    }

    private var directories: [Directory] {
        var all = [root, temporary, data.root] + data.all
        for queue in Queue.allCases { all += [self[queue].root] + self[queue].all }
        return all
    }

    /// Why the directories are not to be trusted; nil if they are.
    ///
    /// Where others may write, what is found may be anybody's; where they may read, uploads are. It is
    /// not mended: that would hide it from whoever has to know.
    private static func strangeness(of directories: [Directory]) throws(SystemError) -> String? {
        let user = Directory.user
        let owner = try directories[0].status().owner
        // root lists and purges whatever user's spool it is; nobody else does.
        guard owner == user || user == 0 else {
            return "it belongs to user \(owner), and this is user \(user)"
        }
        for directory in directories {
            let status = try directory.status()
            if status.owner != owner {
                return
                    "\(directory.path) belongs to user \(status.owner), the spool to user \(owner)"
            }
            if status.isOpenToOthers {
                return
                    "\(directory.path) has mode 0\(String(status.permissions, radix: 8)), so that "
                    + "others get at uploads; look who did, then chmod -R go= it"
            }
        }
        return nil
    }

    private static func sentence(of format: String) -> String {
        let shown = format.prefix { $0 != "\n" }.prefix(40)
        return "its format is '\(shown)', and this program knows '\(Self.format.dropLast())'; "
            + "use the version of spoolgate that made it, or another directory"
    }

    /// Calls `body` with every upload that has a file in one of `places`, and the number of the place.
    ///
    /// By the first characters of identities, and for each by the places in their order: only the names
    /// of one subdirectory are in memory. Names that are no identities, or stand in the wrong
    /// subdirectory, are passed over.
    ///
    /// - Parameters:
    ///   - places: where to look.
    ///   - unread: called with a subdirectory that cannot be read; the walk goes on if it returns.
    ///   - body: called with each.
    /// - Throws: what one of the two throws, which ends the walk.
    func walk<E: Error>(
        _ places: [Shards],
        unread: (Directory, SystemError) throws(E) -> Void,
        _ body: (UploadID, _ place: Int) throws(E) -> Void
    ) throws(E) {
        for (number, first) in Self.shards.enumerated() {
            for (place, shards) in places.enumerated() {
                let names: [String]
                do throws(SystemError) { names = try shards.all[number].names() } catch {
                    try unread(shards.all[number], error)
                    continue
                }
                for name in names where name.hasPrefix(first) {
                    if let id = UploadID(name) { try body(id, place) }
                }
            }
        }
    }

    /// Calls `body` with every upload that has a file in one of `places`; ends where one cannot be read.
    func walk(
        _ places: [Shards],
        _ body: (UploadID, _ place: Int) throws(SystemError) -> Void
    ) throws(SystemError) {
        try walk(places, unread: { (_, error) throws(SystemError) in throw error }, body)
    }

    /// Moves a file from one queue to another.
    func move(
        _ name: FileName,
        from source: Queue,
        to target: Queue,
        _ disk: Disk
    ) throws(SystemError) {
        let (old, new) = (self[source][name], self[target][name])
        try disk.rename(name.name, in: old, to: name.name, in: new)
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
        // What root makes is the daemon's to read and replace.
        let owner = try root.status().owner
        let file = try disk.create(newName, in: temporary, owner: owner)
        do throws(SystemError) {
            let bytes = Array(text.utf8)
            var position: Int64 = 0
            let path = temporary.path(of: newName)
            try disk.write(bytes.span.bytes, to: file, at: &position, subject: path)
            try disk.sync(file, subject: path)
            try disk.rename(newName, in: temporary, to: name, in: root)
        } catch {
            // A disk that stays full would keep one of every attempt.
            _ = try? disk.unlink(newName, in: temporary)
            throw error
        }
    }

    /// The text of a small file of the root; nil if there is none.
    static func text(
        of name: String,
        in root: Directory,
        limit: Int = 256
    ) throws(SystemError) -> String? {
        guard let file = try root.open(name) else { return nil }
        let bytes = try file.bytes(at: 0, count: limit, subject: root.path(of: name))
        return String(decoding: bytes, as: UTF8.self)
    }

    /// The file `format`, locked for as long as it is kept; nil if there is none.
    func lock() throws(SystemError) -> OpenFile? {
        guard let format = try OpenFile.open("format", in: root) else { return nil }
        try format.descriptor.lock(subject: format.subject)
        return format
    }

    private static let ours = Queue.allCases.map(\.rawValue) + ["data", "tmp"]

    /// What is in a directory that is to become a spool and does not belong there.
    private static func strangers(in root: Directory) throws(SystemError) -> Set<String> {
        Set(try root.names()).subtracting(ours + ["boot", "lost+found"])
    }

    private static func make(
        in root: Directory,
        boot: String,
        disk: Disk
    ) throws(SystemError) {
        for name in ours {
            try disk.makeDirectory(name, in: root)
            if name == "tmp" { continue }
            let directory = try Directory(name, in: root)
            for shard in shards { try disk.makeDirectory(shard, in: directory) }
            try disk.syncDirectory(directory)
        }
        let temporary = try Directory("tmp", in: root)
        try replace(
            "boot",
            with: boot + "\n",
            in: root,
            temporary: temporary,
            disk: disk
        )
        // The file `format` is the commit: without it the next opening makes the rest again.
        try replace("format", with: format, in: root, temporary: temporary, disk: disk)
        try disk.syncDirectory(root)
    }
}

/// The names of one upload's files.
struct FileName {
    /// The identity: the name in the subdirectory.
    let name: String
    /// Which subdirectory.
    let number: Int

    /// The name of that subdirectory.
    var shard: String { String(name.prefix(1)) }

    /// The names for `id`.
    init(_ id: UploadID) {
        name = id.description
        // The first character's value: identities are written in base 32.
        number = name.utf8.first.flatMap { Int(String(UnicodeScalar($0)), radix: 32) } ?? 0
    }
}

extension FileStatus {
    /// Whether anybody but the owner may do anything.
    fileprivate var isOpenToOthers: Bool { permissions & 0o077 != 0 }
}
