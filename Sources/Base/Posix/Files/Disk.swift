// The calls with which the spool changes the disk.
//
// A test's hooks can make call n fail, write less, or be the last, and record all changes. Invariant: without hooks,
// only the system calls run.

import CSpoolgateLinux
import Glibc

/// The calls that change files and directories.
package struct Disk: Sendable {
    /// An operation that changes the disk; the raw value is the name of its system call.
    package enum Call: String, Sendable, CaseIterable {
        case create = "openat"
        case createEmpty = "mknodat"
        case makeDirectory = "mkdirat"
        case write = "pwrite"
        case copy = "copy_file_range"
        case truncate = "ftruncate"
        case sync = "fdatasync"
        case syncDirectory = "fsync"
        case syncFileSystem = "syncfs"
        case link = "linkat"
        case rename = "renameat"
        case unlink = "unlinkat"
        case touch = "futimens"

        fileprivate func check(
            _ result: Int32,
            _ subject: @autoclosure () -> String
        ) throws(SystemError) {
            try SystemError.check(result, rawValue, on: subject())
        }
    }

    /// A hook of tests that runs before each call, with its operation and subject.
    ///
    /// - Returns: the maximum number of bytes that a writing call may write. Ignored for other calls.
    /// - Throws: the error to report instead of making the call.
    package typealias Check = @Sendable (Call, _ subject: String) throws(SystemError) -> Int

    /// The change made by a call.
    ///
    /// Descriptors identify files, and paths identify names.
    package enum Effect: Sendable {
        /// A file was created. `path` is nil if the file has no name.
        case created(Int32, path: String?)
        /// An empty file was created, or the file already existed.
        case createdEmpty(path: String)
        /// A directory was created or already existed.
        case madeDirectory(path: String)
        case wrote(Int32, at: Int64, count: Int)
        case truncated(Int32, size: Int64)
        case synced(Int32)
        case syncedDirectory(path: String)
        /// All files and directories were made durable.
        case syncedFileSystem
        case linked(Int32, path: String)
        case renamed(from: String, to: String)
        case unlinked(path: String)
    }

    /// A hook of tests that runs after each change.
    package typealias Observer = @Sendable (Effect) -> Void

    private let check: Check?
    private let observer: Observer?
    /// The durations of all calls that make content or directory entries durable.
    package static let syncTimes = Histogram(Histogram.short)

    /// Creates a disk; only tests set hooks.
    package init(check: Check? = nil, observer: Observer? = nil) {
        self.check = check
        self.observer = observer
    }

    /// Creates a file, mode 0600, open for reading and writing; throws EEXIST if the name exists.
    package func create(
        _ name: String,
        in directory: Directory
    ) throws(SystemError) -> Descriptor {
        _ = try check?(.create, directory.path(of: name))
        let flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC
        let number = openat(directory.descriptor.number, name, flags, 0o600)
        try Call.create.check(number, directory.path(of: name))
        observer?(.created(number, path: directory.path(of: name)))
        return Descriptor(owning: number)
    }

    /// Creates an unnamed file, mode 0600, on the file system of `directory`.
    ///
    /// - Returns: the file, or nil if the file system does not support unnamed files.
    package func createNameless(in directory: Directory) throws(SystemError) -> Descriptor? {
        _ = try check?(.create, directory.path)
        let number = spoolgate_open_nameless(directory.descriptor.number, ".", 0o600)
        if number >= 0 {
            observer?(.created(number, path: nil))
            return Descriptor(owning: number)
        }
        // Kernels and file systems without O_TMPFILE report these errors (open(2)).
        if [EOPNOTSUPP, EISDIR, ENOENT].contains(errno) { return nil }
        throw SystemError(Call.create.rawValue, on: directory.path)
    }

    /// Creates an empty file, mode 0600, unless the file exists.
    ///
    /// Does not open the file.
    package func createEmpty(_ name: String, in directory: Directory) throws(SystemError) {
        _ = try check?(.createEmpty, directory.path(of: name))
        guard mknodat(directory.descriptor.number, name, S_IFREG | 0o600, 0) == 0 || errno == EEXIST
        else { throw SystemError(Call.createEmpty.rawValue, on: directory.path(of: name)) }
        observer?(.createdEmpty(path: directory.path(of: name)))
    }

    /// Creates a directory, mode 0700, unless the directory exists.
    package func makeDirectory(_ name: String, in directory: Directory) throws(SystemError) {
        _ = try check?(.makeDirectory, directory.path(of: name))
        guard mkdirat(directory.descriptor.number, name, 0o700) == 0 || errno == EEXIST else {
            throw SystemError(Call.makeDirectory.rawValue, on: directory.path(of: name))
        }
        observer?(.madeDirectory(path: directory.path(of: name)))
    }

    /// Creates the directory at `path`, mode 0700, unless the directory exists.
    package func makeDirectory(path: String) throws(SystemError) {
        _ = try check?(.makeDirectory, path)
        guard mkdir(path, 0o700) == 0 || errno == EEXIST else {
            throw SystemError(Call.makeDirectory.rawValue, on: path)
        }
        observer?(.madeDirectory(path: path))
    }

    /// Writes all `bytes` at `position` and advances `position` by the number of bytes.
    ///
    /// If an error is thrown, `position` is then the end of the bytes that were written.
    package func write(
        _ bytes: RawSpan,
        to file: borrowing Descriptor,
        at position: inout Int64,
        subject: @autoclosure () -> String
    ) throws(SystemError) {
        let number = file.number
        var written = 0
        while written < bytes.byteCount {
            let allowed = try check?(.write, subject()) ?? Int.max
            let count = bytes.withUnsafeBytes { source in
                let rest = UnsafeRawBufferPointer(rebasing: source[written...])
                return pwrite(number, rest.baseAddress, min(rest.count, allowed), off_t(position))
            }
            if count < 0 {
                if errno == EINTR { continue }
                throw SystemError(Call.write.rawValue, on: subject())
            }
            observer?(.wrote(number, at: position, count: count))
            written += count
            position += Int64(count)
        }
    }

    /// Copies the first `count` bytes of a file to `position` in another file and advances `position`.
    ///
    /// The files share storage if the file system supports sharing. Memory use is constant. If an error is thrown,
    /// `position` is then the end of the bytes that were copied.
    package func copy(
        _ source: borrowing Descriptor,
        count: Int64,
        to file: borrowing Descriptor,
        at position: inout Int64,
        subject: @autoclosure () -> String
    ) throws(SystemError) {
        let (from, to) = (source.number, file.number)
        var copied: Int64 = 0
        while copied < count {
            let allowed = try check?(.copy, subject()) ?? Int.max
            let maximum = min(count - copied, Int64(allowed), 1 << 30)
            let done = spoolgate_copy(from, copied, to, position, maximum)
            if done < 0 {
                if errno == EINTR { continue }
                throw SystemError(Call.copy.rawValue, on: subject())
            }
            // The source is shorter than `count`.
            guard done > 0 else {
                throw SystemError(call: Call.copy.rawValue, subject: subject(), errno: EIO)
            }
            observer?(.wrote(to, at: position, count: Int(done)))
            copied += done
            position += done
        }
    }

    /// Starts writing a file's cached content to the disk, without waiting.
    ///
    /// Makes nothing durable. The following `sync` reports disk errors.
    package func beginWriteBack(
        _ file: borrowing Descriptor,
        from position: Int64,
        count: Int64
    ) {
        spoolgate_begin_write_back(file.number, position, count)
    }

    /// Sets the size of a file.
    package func truncate(
        _ file: borrowing Descriptor,
        to size: Int64,
        subject: @autoclosure () -> String
    ) throws(SystemError) {
        _ = try check?(.truncate, subject())
        try Call.truncate.check(ftruncate(file.number, off_t(size)), subject())
        observer?(.truncated(file.number, size: size))
    }

    /// Sets a file's modification time to now.
    package func touch(
        _ file: borrowing Descriptor,
        subject: @autoclosure () -> String
    ) throws(SystemError) {
        _ = try check?(.touch, subject())
        try Call.touch.check(futimens(file.number, nil), subject())
    }

    /// Makes a file's content and size durable.
    package func sync(
        _ file: borrowing Descriptor,
        subject: @autoclosure () -> String
    ) throws(SystemError) {
        _ = try check?(.sync, subject())
        let watch = Stopwatch()
        defer { Self.syncTimes.add(nanoseconds: watch.nanoseconds) }
        try Call.sync.check(fdatasync(file.number), subject())
        observer?(.synced(file.number))
    }

    /// Makes the entries of a directory durable.
    package func syncDirectory(_ directory: Directory) throws(SystemError) {
        _ = try check?(.syncDirectory, directory.path)
        let watch = Stopwatch()
        defer { Self.syncTimes.add(nanoseconds: watch.nanoseconds) }
        try Call.syncDirectory.check(fsync(directory.descriptor.number), directory.path)
        observer?(.syncedDirectory(path: directory.path))
    }

    /// Makes every file and directory of the file system that has `directory` durable.
    package func syncFileSystem(of directory: Directory) throws(SystemError) {
        _ = try check?(.syncFileSystem, directory.path)
        let number = directory.descriptor.number
        try Call.syncFileSystem.check(spoolgate_sync_file_system(number), directory.path)
        observer?(.syncedFileSystem)
    }

    /// Sets a directory's mode to 0700, as part of its creation.
    package func makePrivate(_ directory: Directory) throws(SystemError) {
        _ = try check?(.makeDirectory, directory.path)
        try SystemError.check(
            fchmod(directory.descriptor.number, 0o700),
            "fchmod",
            on: directory.path
        )
    }

    /// Gives a name to a file created without one; throws EEXIST if the name exists.
    package func link(
        _ file: borrowing Descriptor,
        as name: String,
        in directory: Directory
    ) throws(SystemError) {
        _ = try check?(.link, directory.path(of: name))
        let source = "/proc/self/fd/\(file.number)"
        let number = directory.descriptor.number
        let status = linkat(AT_FDCWD, source, number, name, AT_SYMLINK_FOLLOW)
        try Call.link.check(status, directory.path(of: name))
        observer?(.linked(file.number, path: directory.path(of: name)))
    }

    /// Renames a file, replacing any file with the new name.
    package func rename(
        _ name: String,
        in source: Directory,
        to newName: String,
        in target: Directory
    ) throws(SystemError) {
        _ = try check?(.rename, target.path(of: newName))
        let numbers = (source.descriptor.number, target.descriptor.number)
        let status = renameat(numbers.0, name, numbers.1, newName)
        try Call.rename.check(status, source.path(of: name))
        observer?(.renamed(from: source.path(of: name), to: target.path(of: newName)))
    }

    /// Removes `name` from a directory; does nothing if `name` is missing.
    ///
    /// - Returns: true if the name existed.
    @discardableResult
    package func unlink(_ name: String, in directory: Directory) throws(SystemError) -> Bool {
        _ = try check?(.unlink, directory.path(of: name))
        if unlinkat(directory.descriptor.number, name, 0) == 0 {
            observer?(.unlinked(path: directory.path(of: name)))
            return true
        }
        guard errno == ENOENT else {
            throw SystemError(Call.unlink.rawValue, on: directory.path(of: name))
        }
        return false
    }
}
