// The directories of a spool and the names in them; see spoolgate-spool(5), LAYOUT.
//
// It opens and makes directories and names an upload's files; what the files mean is not its
// business. Invariant: a file's name is made from an UploadID and from nothing else a client sends.

import SpoolgateCrypto
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// An opened spool directory.
///
/// Every directory in it is held open, so that no call walks a path: whatever a name is replaced by
/// later, a symbolic link too, nothing outside the spool is touched. Any thread.
final class SpoolLayout: Sendable {
    /// What the file `format` holds.
    static let format = "spoolgate-spool 2\n"
    /// The first characters of identities; each has a subdirectory in `uploads`.
    static let shards = "0123456789abcdefghijklmnopqrstuv".map(String.init)

    /// The spool directory.
    let root: Directory
    /// The subdirectories of `uploads` in the order of `shards`: records, and content beside them.
    let uploads: [Directory]
    /// Names of uploads by the time at which somebody has to look at them.
    let queue: Directory
    /// Records that were set aside.
    let corrupt: Directory
    /// A file for each daemon that has not ended in good order.
    let daemons: Directory
    /// Files without a name of their own, and new ones on their way to it.
    let temporary: Directory

    /// Opens the spool at `path`; where `creating`, makes it if it is absent or empty.
    init(path: String, creating: Bool, disk: Disk) throws(SpoolError) {
        func unusable(_ reason: String) -> SpoolError {
            .unusable(directory: path, reason: reason)
        }
        do {
            if creating { try disk.makeDirectory(path: path) }
            let root = try Directory(path: path)
            if let format = try Self.format(of: root, path) {
                guard format == Self.format else {
                    throw SpoolError.unusable(
                        directory: path,
                        reason: Self.sentence(of: format),
                        advice: "use the version of spoolgate that created it, or another directory"
                    )
                }
            } else {
                guard creating else { throw unusable("it has no file named format") }
                // Nothing was in it that others could have read or put there.
                if try root.status().isOpenToOthers { try disk.makePrivate(root) }
                // Its own name. Where the parent is not for us to read, somebody else made it.
                if let parent = try? Directory("..", in: root) { try disk.syncDirectory(parent) }
                try Self.make(in: root, disk: disk)
            }
            // Whoever made it may have died before this.
            if creating { try disk.syncDirectory(root) }
            self.root = root
            let uploads = try Directory("uploads", in: root)
            self.uploads = try Self.shards.map { try Directory($0, in: uploads) }
            queue = try Directory("queue", in: root)
            corrupt = try Directory("corrupt", in: root)
            daemons = try Directory("daemons", in: root)
            temporary = try Directory("tmp", in: root)
            let all = [root, uploads, queue, corrupt, daemons, temporary] + self.uploads
            try Self.checkTrust(in: all, path)
        } catch let error as SpoolError {
            throw error
        } catch let error as SystemError where error.isReadOnly {
            throw .disk(error)
        } catch {
            throw unusable("\(error)")
        }
    }

    /// Throws where the directories are not to be trusted.
    ///
    /// Where others may write, what is found may be anybody's; where they may read, uploads are. It is
    /// not mended: that would hide it from whoever has to know.
    private static func checkTrust(in directories: [Directory], _ path: String) throws {
        let user = Directory.user
        let owner = try directories[0].status().owner
        // root lists and purges whatever user's spool it is; nobody else does.
        guard owner == user || user == 0 else {
            throw SpoolError.unusable(
                directory: path,
                reason: "it belongs to user \(owner), but this process runs as user \(user)"
            )
        }
        for directory in directories {
            let status = try directory.status()
            if status.owner != owner {
                let reason =
                    "\(directory.path) belongs to user \(status.owner), but the spool to user \(owner)"
                throw SpoolError.unusable(directory: path, reason: reason)
            }
            if status.isOpenToOthers {
                let mode = String(status.permissions, radix: 8)
                throw SpoolError.unusable(
                    directory: path,
                    reason:
                        "\(directory.path) has mode 0\(mode), which gives other users access to uploads",
                    advice: "find out who changed it, then run chmod -R go= on it"
                )
            }
        }
    }

    private static func sentence(of format: String) -> String {
        let shown = format.prefix { $0 != "\n" }.prefix(40)
        return "its format is '\(shown)', but this program supports '\(Self.format.dropLast())'"
    }

    // MARK: An upload's files

    /// The subdirectory with the files of an upload.
    func directory(of name: FileName) -> Directory { uploads[name.number] }

    /// Opens the record of an upload; nil if there is none.
    func openRecord(_ name: FileName, forWriting: Bool = true) throws(SystemError) -> OpenFile? {
        try OpenFile.open(name.record, in: directory(of: name), forWriting: forWriting)
    }

    /// Opens the content of an upload; nil if there is none.
    func openData(_ name: FileName) throws(SystemError) -> OpenFile? {
        try OpenFile.open(name.data, in: directory(of: name))
    }

    // MARK: Walking

    /// What is found of an upload in its subdirectory.
    struct Found {
        /// Its identity.
        let id: UploadID
        /// Whether it has a record, or had one when its subdirectory was read.
        let hasRecord: Bool
        /// Whether it has content there.
        var hasData: Bool
    }

    /// Calls `body` with every upload that has a file in `uploads`.
    ///
    /// Nothing moves there, so none is seen twice; one that is made or removed meanwhile is seen or not. Only
    /// the names of one subdirectory are in memory. Names that are no identities, or stand in the wrong
    /// subdirectory, are passed over.
    ///
    /// - Parameters:
    ///   - unread: called with a subdirectory that cannot be read; the walk goes on if it returns.
    ///   - body: called with each.
    /// - Throws: what one of the two throws, which ends the walk.
    func walk<E: Error>(
        unread: (Directory, SystemError) throws(E) -> Void,
        _ body: (Found) throws(E) -> Void
    ) throws(E) {
        for (first, directory) in zip(Self.shards, uploads) {
            let names: [String]
            do throws(SystemError) { names = try directory.names() } catch {
                try unread(directory, error)
                continue
            }
            // Sorted, content follows its record.
            var found: Found?
            for name in names.sorted() where name.hasPrefix(first) {
                let isData = name.hasSuffix(FileName.dataSuffix)
                let text = isData ? name.dropLast(FileName.dataSuffix.count) : name[...]
                guard let id = UploadID(text) else { continue }
                if isData, found?.id == id {
                    found?.hasData = true
                    continue
                }
                if let found { try body(found) }
                found = Found(id: id, hasRecord: !isData, hasData: isData)
            }
            if let found { try body(found) }
        }
    }

    // MARK: Small files

    /// Puts a small file in the root by one rename, durable but for its name.
    func replace(_ name: String, with text: String, on disk: Disk) throws(SystemError) {
        try Self.replace(name, with: text, in: root, temporary: temporary, disk: disk)
    }

    private static func replace(
        _ name: String,
        with text: String,
        in root: Directory,
        temporary: Directory,
        disk: Disk
    ) throws(SystemError) {
        let newName = "\(name).\(TemporaryName.next())"
        // What root makes is the daemon's to read and replace.
        let owner = try root.status().owner
        let file = OpenFile(
            try disk.create(newName, in: temporary, owner: owner),
            newName,
            in: temporary
        )
        do throws(SystemError) {
            try disk.write(Array(text.utf8), to: file, at: 0)
            try disk.sync(file)
            try disk.rename(newName, in: temporary, to: name, in: root)
        } catch {
            // A disk that stays full would keep one of every attempt.
            _ = try? disk.unlink(newName, in: temporary)
            throw error
        }
    }

    /// The text of a small file of the root; nil if there is none.
    static func text(of name: String, in root: Directory) throws(SystemError) -> String? {
        guard let file = try root.open(name) else { return nil }
        let bytes = try file.bytes(at: 0, count: 256, subject: root.path(of: name))
        return String(decoding: bytes, as: UTF8.self)
    }

    // MARK: Making

    private static let ours = ["uploads", "queue", "corrupt", "daemons", "tmp"]

    /// The text of the file `format`; nil if there is none, and a spool can be made.
    private static func format(of root: Directory, _ path: String) throws -> String? {
        if let format = try text(of: "format", in: root) { return format }
        guard try !strangers(in: root).isEmpty else { return nil }
        // Another process that makes the same spool may have come to its end since, and written more.
        if let format = try text(of: "format", in: root) { return format }
        throw SpoolError.unusable(directory: path, reason: "it has no file named format")
    }

    /// What is in a directory that is to become a spool and does not belong there.
    private static func strangers(in root: Directory) throws(SystemError) -> Set<String> {
        Set(try root.names()).subtracting(ours + ["lost+found"])
    }

    private static func make(in root: Directory, disk: Disk) throws(SystemError) {
        for name in ours { try disk.makeDirectory(name, in: root) }
        let uploads = try Directory("uploads", in: root)
        for shard in shards { try disk.makeDirectory(shard, in: uploads) }
        try disk.syncDirectory(uploads)
        let temporary = try Directory("tmp", in: root)
        // The file `format` is the commit: without it the next opening makes the rest again.
        try replace("format", with: format, in: root, temporary: temporary, disk: disk)
    }
}

/// The names of one upload's files.
struct FileName {
    /// What the name of content has behind the identity.
    static let dataSuffix = ".data"
    /// The name of the record: the identity.
    let record: String
    /// The name of the content.
    var data: String { record + Self.dataSuffix }
    /// Which subdirectory of `uploads` they are in.
    let number: Int

    /// What stands for the names of an upload whose files have none.
    static let none = FileName(UploadID(high: 0, low: 0))

    /// The names for `id`.
    init(_ id: UploadID) {
        record = id.description
        // The first character's value: identities are written in base 32.
        number = record.utf8.first.map { Int($0.isDigit ? $0 - 0x30 : $0 - 0x61 + 10) } ?? 0
    }
}

/// A name in `queue`: the time at which somebody has to look at an upload, and the upload.
struct QueueName {
    /// The time of what waits for a person.
    static let never = WallTime(seconds: 9_999_999_999)
    private static let digits = 10

    /// The time.
    let time: WallTime
    /// The upload.
    let id: UploadID

    /// The name of `id` at a time, which is held to what ten digits can say.
    init(_ time: WallTime, _ id: UploadID) {
        self.time = max(WallTime(seconds: 0), min(time, Self.never))
        self.id = id
    }

    /// Reads a name; nil for one that is none.
    init?(_ text: String) {
        let bytes = text.utf8
        guard let seconds = Int64(digits: bytes.prefix(Self.digits)),
            bytes.dropFirst(Self.digits).first == UInt8(ascii: "."),
            let id = UploadID(bytes: bytes.dropFirst(Self.digits + 1))
        else { return nil }
        time = WallTime(seconds: seconds)
        self.id = id
    }

    /// The name.
    var text: String {
        let seconds = String(time.seconds)
        return String(repeating: "0", count: Self.digits - seconds.utf8.count) + seconds + ".\(id)"
    }
}

/// Names in `tmp/` and `daemons/` that no other process or thread uses.
enum TemporaryName {
    /// A new name.
    static func next() -> String { String(RandomBits.next(), radix: 32) }
}

extension FileStatus {
    /// Whether anybody but the owner may do anything.
    fileprivate var isOpenToOthers: Bool { permissions & 0o077 != 0 }
}
