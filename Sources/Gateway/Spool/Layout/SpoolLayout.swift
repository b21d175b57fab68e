// The directories of a spool and the names in them; see spoolgate-spool(5), LAYOUT.
//
// Invariant: a file's name is derived from an `UploadID` and from no other input of a client.

import SpoolgateCrypto
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// An opened spool directory; thread-safe.
///
/// All subdirectories stay open, so that no call resolves a path. Nothing outside the spool is touched, even if a name
/// is replaced by a symbolic link.
final class SpoolLayout: Sendable {
    /// The content of the file `format`.
    static let format = "spoolgate-spool 2\n"
    /// The possible first characters of an upload's identity; `uploads` has a subdirectory for each.
    static let shards = "0123456789abcdefghijklmnopqrstuv".map(String.init)

    let root: Directory
    /// The subdirectories of `uploads`, in the order of `shards`, with records and data files.
    let uploads: [Directory]
    /// The directory whose names list the waiting uploads in the order in which they are due.
    let queue: Directory
    /// The directory of records that cannot be read or do not match their content.
    let corrupt: Directory
    /// The directory with a file for each daemon that is running or has crashed.
    let daemons: Directory
    /// The directory of files without a name, and of new files until they are renamed.
    let temporary: Directory

    /// Opens the spool.
    ///
    /// If `creating` is true and the directory is missing or empty, creates the spool first.
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
                // The directory was empty, so other users can have read or placed nothing in it.
                if try root.status().isOpenToOthers { try disk.makePrivate(root) }
                // Makes the directory's own name durable. If the parent is unreadable, this process did not create the
                // directory.
                if let parent = try? Directory("..", in: root) { try disk.syncDirectory(parent) }
                try Self.make(in: root, disk: disk)
            }
            // The process that created the spool may have crashed before this sync.
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

    /// Throws an error if a directory belongs to another user or is accessible to one.
    ///
    /// That user could have placed files there or read uploads. The permissions are not repaired, so that the operator
    /// finds out.
    private static func checkTrust(in directories: [Directory], _ path: String) throws {
        let user = Directory.user
        let owner = try directories[0].status().owner
        // Not even root may use another user's spool, whose owner could make root change other files.
        guard owner == user else {
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

    /// Throws an error if uploads cannot use a directory: it was removed, replaced or hidden by a mount since it was
    /// opened, or this process has lost access to it.
    func checkPlaces() throws(SystemError) {
        try Self.check(root, isAt: try Directory(path: root.path).status())
        for directory in [queue, corrupt, daemons, temporary] {
            try Self.check(directory, isAt: try root.status(of: directory.name))
        }
        for (shard, directory) in zip(Self.shards, uploads) {
            try Self.check(directory, isAt: try root.status(of: "uploads/\(shard)"))
        }
    }

    private static func check(
        _ directory: Directory,
        isAt found: FileStatus?
    ) throws(SystemError) {
        let opened = try directory.status()
        guard let found, (found.file, found.fileSystem) == (opened.file, opened.fileSystem) else {
            throw SystemError(
                call: "fstatat",
                subject: directory.path,
                errno: found == nil ? SystemError.gone : SystemError.replaced
            )
        }
        try directory.checkAccess()
    }

    // MARK: An upload's files

    func directory(of name: FileName) -> Directory { uploads[name.number] }

    /// Opens an upload's record, or returns nil if the record is missing.
    func openRecord(_ name: FileName, forWriting: Bool = true) throws(SystemError) -> OpenFile? {
        try OpenFile.open(name.record, in: directory(of: name), forWriting: forWriting)
    }

    /// Opens an upload's data file, or returns nil if the file is missing.
    func openData(_ name: FileName) throws(SystemError) -> OpenFile? {
        try OpenFile.open(name.data, in: directory(of: name))
    }

    // MARK: Walking

    /// The files of one identity when its subdirectory was read.
    struct Found {
        let id: UploadID
        let hasRecord: Bool
        var hasData = false
        /// Whether a removal of the upload was begun.
        var isRemovalBegun = false
    }

    /// Returns which files an identity has in `uploads`.
    func found(_ id: UploadID) throws(SystemError) -> Found {
        let name = FileName(id)
        let directory = directory(of: name)
        return Found(
            id: id,
            hasRecord: try directory.status(of: name.record) != nil,
            hasData: try directory.status(of: name.data) != nil,
            isRemovalBegun: try directory.status(of: name.removal) != nil
        )
    }

    /// Returns the identities that have a record or content in `corrupt`, in order.
    func corruptUploads() throws(SystemError) -> [UploadID] {
        let names = try corrupt.names().map { name in
            name.hasSuffix(FileName.dataSuffix)
                ? name.dropLast(FileName.dataSuffix.count) : name[...]
        }
        return Set(names).sorted().compactMap { UploadID($0) }
    }

    /// Calls `body` with every upload that has a file in `uploads`.
    ///
    /// Each upload is found at most once. An upload created or removed during the walk may be missed. The names of only
    /// one subdirectory at a time are in memory. Names that are not identities, or are in the wrong subdirectory, are
    /// skipped. `unread` is called with each subdirectory that cannot be read; the walk continues unless `unread`
    /// throws.
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
            // In sorted order, the other files follow the record.
            var found: Found?
            for name in names.sorted() where name.hasPrefix(first) {
                let isData = name.hasSuffix(FileName.dataSuffix)
                let isRemoval = !isData && name.hasSuffix(FileName.removalSuffix)
                let suffix =
                    isData ? FileName.dataSuffix : isRemoval ? FileName.removalSuffix : ""
                guard let id = UploadID(name.dropLast(suffix.count)) else { continue }
                if found?.id != id {
                    if let found { try body(found) }
                    found = Found(id: id, hasRecord: suffix.isEmpty)
                }
                if isData { found?.hasData = true }
                if isRemoval { found?.isRemovalBegun = true }
            }
            if let found { try body(found) }
        }
    }

    // MARK: Small files

    /// Replaces a small file in the root directory by a rename.
    ///
    /// On return, the content is durable, but the rename may not be.
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
        let file = OpenFile(try disk.create(newName, in: temporary), newName, in: temporary)
        do throws(SystemError) {
            try disk.write(Array(text.utf8), to: file, at: 0)
            try disk.sync(file)
            try disk.rename(newName, in: temporary, to: name, in: root)
        } catch {
            // While the disk is full, each attempt would leave a file.
            _ = try? disk.unlink(newName, in: temporary)
            throw error
        }
    }

    /// Returns the first 256 bytes of a file in `root` as text, or nil if the file is missing.
    static func text(of name: String, in root: Directory) throws(SystemError) -> String? {
        guard let file = try root.open(name) else { return nil }
        let bytes = try file.bytes(at: 0, count: 256, subject: root.path(of: name))
        return String(decoding: bytes, as: UTF8.self)
    }

    // MARK: Making

    private static let ours = ["uploads", "queue", "corrupt", "daemons", "tmp"]

    /// Returns the text of the file `format`, or nil if it is missing and a spool can be created here.
    private static func format(of root: Directory, _ path: String) throws -> String? {
        if let format = try text(of: "format", in: root) { return format }
        guard try !strangers(in: root).isEmpty else { return nil }
        // Another process that was creating the same spool may have completed it since.
        if let format = try text(of: "format", in: root) { return format }
        throw SpoolError.unusable(directory: path, reason: "it has no file named format")
    }

    /// Returns the names that do not belong to a spool and therefore prevent its creation.
    private static func strangers(in root: Directory) throws(SystemError) -> Set<String> {
        Set(try root.names()).subtracting(ours + ["lost+found"])
    }

    private static func make(in root: Directory, disk: Disk) throws(SystemError) {
        for name in ours { try disk.makeDirectory(name, in: root) }
        let uploads = try Directory("uploads", in: root)
        for shard in shards { try disk.makeDirectory(shard, in: uploads) }
        try disk.syncDirectory(uploads)
        let temporary = try Directory("tmp", in: root)
        // The file `format` is the commit: without it, the next opening creates the rest again.
        try replace("format", with: format, in: root, temporary: temporary, disk: disk)
    }
}

/// The names of one upload's files.
struct FileName {
    static let dataSuffix = ".data"
    static let removalSuffix = ".removed"
    /// The name of the record, which is the upload's identity.
    let record: String
    var data: String { record + Self.dataSuffix }
    /// The name of an empty file that exists while the upload is removed, and explains content without a record.
    var removal: String { record + Self.removalSuffix }
    /// The index of the files' subdirectory in `SpoolLayout.uploads`.
    let number: Int

    /// The placeholder for an upload without named files.
    static let none = FileName(UploadID(high: 0, low: 0))

    init(_ id: UploadID) {
        record = id.description
        // The value of the first character, because identities are written in base 32.
        number = record.utf8.first.map { Int($0.isDigit ? $0 - 0x30 : $0 - 0x61 + 10) } ?? 0
    }
}

/// A name in the directory `queue`: the time of an upload's next action, and its identity.
struct QueueName {
    /// The time in the names of uploads that wait for an operator.
    static let never = WallTime(seconds: 9_999_999_999)
    private static let digits = 10

    let time: WallTime
    let id: UploadID

    /// Creates a name, with `time` limited to the range of ten digits.
    init(_ time: WallTime, _ id: UploadID) {
        self.time = max(WallTime(seconds: 0), min(time, Self.never))
        self.id = id
    }

    /// Parses a name, or returns nil if the name is invalid.
    init?(_ text: String) {
        let bytes = text.utf8
        guard let seconds = Int64(digits: bytes.prefix(Self.digits)),
            bytes.dropFirst(Self.digits).first == UInt8(ascii: "."),
            let id = UploadID(bytes: bytes.dropFirst(Self.digits + 1))
        else { return nil }
        time = WallTime(seconds: seconds)
        self.id = id
    }

    var text: String {
        let seconds = String(time.seconds)
        return String(repeating: "0", count: Self.digits - seconds.utf8.count) + seconds + ".\(id)"
    }
}

/// Random names for files in `tmp` and `daemons`, which no other process or thread uses.
enum TemporaryName {
    static func next() -> String { String(RandomBits.next(), radix: 32) }
}

extension FileStatus {
    fileprivate var isOpenToOthers: Bool { permissions & 0o077 != 0 }
}

// MARK: Open files

// An open file of the spool, with its name for messages.
//
// The last reference closes the file. Invariant: the name is the path at the opening, and no later call uses the name.

final class OpenFile: Sendable {
    let descriptor: Descriptor
    private let directory: Directory
    private let name: String

    /// Takes ownership of a descriptor opened with the path `name` below `directory`.
    init(_ descriptor: consuming Descriptor, _ name: String, in directory: Directory) {
        self.descriptor = descriptor
        self.name = name
        self.directory = directory
    }

    /// Opens a file, or returns nil if the file is missing.
    static func open(
        _ name: String,
        in directory: Directory,
        forWriting: Bool = true
    ) throws(SystemError) -> OpenFile? {
        guard let descriptor = try directory.open(name, forWriting: forWriting) else { return nil }
        return OpenFile(descriptor, name, in: directory)
    }

    /// The file's path, for messages.
    var subject: String { directory.path(of: name) }

    func status() throws(SystemError) -> FileStatus { try descriptor.status(subject: subject) }

    /// Locks the file, or returns false if another process holds the lock.
    func tryLock() throws(SystemError) -> Bool { try descriptor.tryLock(subject: subject) }

    /// Returns fewer than `count` bytes only at the end of the file.
    func bytes(at position: Int64, count: Int) throws(SystemError) -> [UInt8] {
        try descriptor.bytes(at: position, count: count, subject: subject)
    }
}

extension Disk {
    func write(_ bytes: [UInt8], to file: OpenFile, at position: Int64) throws(SystemError) {
        var position = position
        try write(
            bytes.span.bytes,
            to: file.descriptor,
            at: &position,
            subject: file.subject
        )
    }

    /// Makes a file's content and size durable.
    func sync(_ file: OpenFile) throws(SystemError) {
        try sync(file.descriptor, subject: file.subject)
    }

    /// Rewrites a part of a file with the same bytes, so that the next sync writes it to the disk again.
    func writeAgain(_ part: Range<Int64>, of file: OpenFile) throws(SystemError) {
        let bytes = try file.bytes(at: part.lowerBound, count: Int(clamping: part.count))
        try write(bytes, to: file, at: part.lowerBound)
    }

    func truncate(_ file: OpenFile, to size: Int64) throws(SystemError) {
        try truncate(file.descriptor, to: size, subject: file.subject)
    }
}
