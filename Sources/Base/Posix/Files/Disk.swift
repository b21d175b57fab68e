// The seam: every call by which the spool changes the disk goes through a `Disk`.
//
// It adds nothing to the calls but a place to stand before and behind them, so that a test can make
// call n fail, write short, or be the last one ever made, and can know what the disk was given. Reading
// needs no seam; it is in `Directory` and `FileReading`. Invariant: without a check and a witness a
// call here is exactly the system call it is named by.

import CSpoolgateLinux
import Glibc

/// The calls that change files and directories.
package struct Disk: Sendable {
    /// What a call does, by the system call that does it.
    package enum Call: String, Sendable, CaseIterable {
        /// Makes a file.
        case create = "openat"
        /// Makes an empty file that nobody opens.
        case createEmpty = "mknodat"
        /// Makes a directory.
        case makeDirectory = "mkdirat"
        /// Writes content.
        case write = "pwrite"
        /// Copies content of one file into another.
        case copy = "copy_file_range"
        /// Sets a file's size.
        case truncate = "ftruncate"
        /// Makes a file's content and size durable.
        case sync = "fdatasync"
        /// Makes a directory's entries durable.
        case syncDirectory = "fsync"
        /// Gives a nameless file a name.
        case link = "linkat"
        /// Moves a name.
        case rename = "renameat"
        /// Removes a name.
        case unlink = "unlinkat"
        /// Sets the time of a file's last change to the present.
        case touch = "futimens"

        fileprivate func check(
            _ result: Int32,
            _ subject: @autoclosure () -> String
        ) throws(SystemError) {
            try SystemError.check(result, rawValue, on: subject())
        }
    }

    /// Asked before every call with what it does and to what.
    ///
    /// - Returns: the most bytes a write may write; ignored for other calls.
    /// - Throws: the error that the call is to fail with, without being made.
    package typealias Check = @Sendable (Call, _ subject: String) throws(SystemError) -> Int

    /// What a call that succeeded has changed; files by an open descriptor, names by their paths.
    package enum Effect: Sendable {
        /// A file was made; without a name where `path` is nil.
        case created(Int32, path: String?)
        /// An empty file was made, or a file was there.
        case createdEmpty(path: String)
        /// A directory was made, or was there.
        case madeDirectory(path: String)
        /// Bytes were written.
        case wrote(Int32, at: Int64, count: Int)
        /// The size was set.
        case truncated(Int32, size: Int64)
        /// Content and size are durable.
        case synced(Int32)
        /// The entries are durable.
        case syncedDirectory(path: String)
        /// A file got a name.
        case linked(Int32, path: String)
        /// A name was moved.
        case renamed(from: String, to: String)
        /// A name was removed.
        case unlinked(path: String)
    }

    /// Told of every change after it was made.
    package typealias Witness = @Sendable (Effect) -> Void

    private let check: Check?
    private let witness: Witness?
    /// How long it took each time in this process until content or entries were durable.
    package static let syncTimes = Histogram(Histogram.short)

    /// Makes a disk; `check` and `witness` are for tests and nil otherwise.
    package init(check: Check? = nil, witness: Witness? = nil) {
        self.check = check
        self.witness = witness
    }

    /// Makes a new file, mode 0600, open for reading and writing; EEXIST if the name is taken.
    ///
    /// It belongs to `owner`, where that is given and root makes it.
    package func create(
        _ name: String,
        in directory: Directory,
        owner: UInt32? = nil
    ) throws(SystemError) -> Descriptor {
        _ = try check?(.create, directory.path(of: name))
        let flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC
        let number = openat(directory.descriptor.number, name, flags, 0o600)
        try Call.create.check(number, directory.path(of: name))
        if let owner, geteuid() == 0 { _ = fchown(number, owner, gid_t.max) }
        witness?(.created(number, path: directory.path(of: name)))
        return Descriptor(owning: number)
    }

    /// Makes a file without a name, mode 0600, on the file system of `directory`.
    ///
    /// - Returns: nil where the file system has no such files.
    package func createNameless(in directory: Directory) throws(SystemError) -> Descriptor? {
        _ = try check?(.create, directory.path)
        let number = spoolgate_open_nameless(directory.descriptor.number, ".", 0o600)
        if number >= 0 {
            witness?(.created(number, path: nil))
            return Descriptor(owning: number)
        }
        // ENOENT and EISDIR: what kernels and file systems without O_TMPFILE say (open(2)).
        if [EOPNOTSUPP, EISDIR, ENOENT].contains(errno) { return nil }
        throw SystemError(Call.create.rawValue, on: directory.path)
    }

    /// Makes an empty file, mode 0600, without opening it; one that is there already is fine.
    package func createEmpty(_ name: String, in directory: Directory) throws(SystemError) {
        _ = try check?(.createEmpty, directory.path(of: name))
        guard mknodat(directory.descriptor.number, name, S_IFREG | 0o600, 0) == 0 || errno == EEXIST
        else { throw SystemError(Call.createEmpty.rawValue, on: directory.path(of: name)) }
        witness?(.createdEmpty(path: directory.path(of: name)))
    }

    /// Makes a directory, mode 0700; one that is there already is fine.
    package func makeDirectory(_ name: String, in directory: Directory) throws(SystemError) {
        _ = try check?(.makeDirectory, directory.path(of: name))
        guard mkdirat(directory.descriptor.number, name, 0o700) == 0 || errno == EEXIST else {
            throw SystemError(Call.makeDirectory.rawValue, on: directory.path(of: name))
        }
        witness?(.madeDirectory(path: directory.path(of: name)))
    }

    /// Makes the directory at `path`, mode 0700; one that is there already is fine.
    package func makeDirectory(path: String) throws(SystemError) {
        _ = try check?(.makeDirectory, path)
        guard mkdir(path, 0o700) == 0 || errno == EEXIST else {
            throw SystemError(Call.makeDirectory.rawValue, on: path)
        }
        witness?(.madeDirectory(path: path))
    }

    /// Writes all of `bytes` from `position` on and moves `position` behind them.
    ///
    /// When it throws, `position` is behind the bytes that were written.
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
            witness?(.wrote(number, at: position, count: count))
            written += count
            position += Int64(count)
        }
    }

    /// Copies `count` bytes from the beginning of a file to `position` in another one, and moves `position`
    /// behind them; shared where the file system can, and in constant memory everywhere.
    ///
    /// When it throws, `position` is behind the bytes that were copied.
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
            let most = min(count - copied, Int64(allowed), 1 << 30)
            let done = spoolgate_copy(from, copied, to, position, most)
            if done < 0 {
                if errno == EINTR { continue }
                throw SystemError(Call.copy.rawValue, on: subject())
            }
            // The source ends before it should.
            guard done > 0 else {
                throw SystemError(call: Call.copy.rawValue, subject: subject(), errno: EIO)
            }
            witness?(.wrote(to, at: position, count: Int(done)))
            copied += done
            position += done
        }
    }

    /// Has the kernel begin to write content to the disk that was written to the file.
    ///
    /// It waits for nothing and promises nothing, and no error of the disk is taken here: the sync that
    /// follows must tell it.
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
        witness?(.truncated(file.number, size: size))
    }

    /// Says that a file changed last at the present moment.
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
        witness?(.synced(file.number))
    }

    /// Makes the entries of a directory durable.
    package func syncDirectory(_ directory: Directory) throws(SystemError) {
        _ = try check?(.syncDirectory, directory.path)
        let watch = Stopwatch()
        defer { Self.syncTimes.add(nanoseconds: watch.nanoseconds) }
        try Call.syncDirectory.check(fsync(directory.descriptor.number), directory.path)
        witness?(.syncedDirectory(path: directory.path))
    }

    /// Takes from everybody but its owner what they may do in a directory; part of making one.
    package func makePrivate(_ directory: Directory) throws(SystemError) {
        _ = try check?(.makeDirectory, directory.path)
        try SystemError.check(
            fchmod(directory.descriptor.number, 0o700),
            "fchmod",
            on: directory.path
        )
    }

    /// Gives a nameless file the name `name`; EEXIST if it is taken.
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
        witness?(.linked(file.number, path: directory.path(of: name)))
    }

    /// Moves a file, replacing what has the new name.
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
        witness?(.renamed(from: source.path(of: name), to: target.path(of: newName)))
    }

    /// Removes a name; one that is gone already is fine.
    ///
    /// - Returns: whether it was there.
    @discardableResult
    package func unlink(_ name: String, in directory: Directory) throws(SystemError) -> Bool {
        _ = try check?(.unlink, directory.path(of: name))
        if unlinkat(directory.descriptor.number, name, 0) == 0 {
            witness?(.unlinked(path: directory.path(of: name)))
            return true
        }
        guard errno == ENOENT else {
            throw SystemError(Call.unlink.rawValue, on: directory.path(of: name))
        }
        return false
    }
}
