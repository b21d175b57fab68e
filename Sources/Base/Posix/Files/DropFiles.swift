// The few calls by which a file is put into a directory that others read: link or copy, rename, sync.
//
// Every path is relative to the open directory, so that a file cannot land half in another one. It
// knows nothing of uploads or records. The invariant: a name that does not begin with a dot appears
// in the directory only by a rename of a whole file, which is on disk where it is to survive a power cut.

import Glibc

/// The content of a file could not be read; not the directory's fault.
package struct DropContentError: Error {
    /// Why not.
    package var underlying: any Error
}

/// One open directory that files are dropped into.
///
/// Used by one thread.
package struct DropFiles: ~Copyable {
    private let directory: Directory
    private let number: Int32
    private let survivesPowerCut: Bool

    /// Opens the directory.
    ///
    /// - Parameters:
    ///   - path: the directory; it must exist.
    ///   - survivesPowerCut: whether what is put there must; otherwise nothing is synced.
    /// - Throws: `SystemError` when it cannot be opened.
    package init(path: String, survivesPowerCut: Bool = true) throws(SystemError) {
        self.survivesPowerCut = survivesPowerCut
        directory = try Directory(path: path)
        number = directory.descriptor.number
    }

    /// Makes `name` the file that is open as `descriptor`, by a hard link.
    ///
    /// False when that file cannot be linked here (another file system, not ours, no name allowed)
    /// or is not `length` bytes long, and nothing was done.
    package func link(_ descriptor: Int32, length: Int64, as name: String) throws(SystemError)
        -> Bool
    {
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_size == length,
            status.st_mode & S_IFMT == S_IFREG, fchmod(descriptor, 0o640) == 0
        else { return false }
        let temporary = Self.temporary(for: name)
        try removeLeft(temporary)
        let source = "/proc/self/fd/\(descriptor)"
        guard
            linkat(AT_FDCWD, source, number, temporary, AT_SYMLINK_FOLLOW) == 0
        else {
            if [EXDEV, EPERM, ENOENT, EMLINK, EOPNOTSUPP, ENOSYS].contains(errno) { return false }
            throw SystemError("linkat", on: directory.path(of: temporary))
        }
        do throws(SystemError) {
            if survivesPowerCut { try syncFile(temporary) }
            try check(renameat(number, temporary, number, name), "renameat", name)
            // Between two links to one file rename(2) does nothing and leaves both; that is the case
            // when the same data file is dropped again.
            remove(temporary)
        } catch {
            remove(temporary)
            throw error
        }
        return true
    }

    /// Makes `name` a new file with what `next` puts into its buffer, call after call, until it
    /// puts nothing.
    ///
    /// - Parameters:
    ///   - name: the file's name.
    ///   - length: bytes that are expected; nil: unknown.
    ///   - next: fills a buffer.
    /// - Returns: the bytes written.
    /// - Throws: `SystemError`, or `DropContentError` with what `next` threw. Nothing is left.
    package func write(
        as name: String,
        expecting length: Int64? = nil,
        _ next: (UnsafeMutableRawBufferPointer) throws -> Int
    ) throws -> Int64 {
        try make(name) { file, temporary in
            try fill(file, temporary, expecting: length ?? .max, next)
        }
    }

    /// Makes `name` a new file with these bytes.
    /// - Throws: `SystemError`. Nothing is left.
    package func write(_ bytes: [UInt8], as name: String) throws {
        try make(name) { file, temporary in
            try bytes.withUnsafeBytes { try write($0, to: file, temporary) }
        }
    }

    private func make<R>(
        _ name: String,
        _ write: (_ file: Int32, _ temporary: String) throws -> R
    ) throws -> R {
        let temporary = Self.temporary(for: name)
        let flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC
        var opened = openat(number, temporary, flags, 0o640)
        if opened < 0, errno == EEXIST {
            try removeLeft(temporary)
            opened = openat(number, temporary, flags, 0o640)
        }
        let file = Descriptor(owning: try check(opened, "openat", temporary))
        do {
            let result = try write(file.number, temporary)
            // The mode of openat is cut by the umask.
            try check(fchmod(file.number, 0o640), "fchmod", temporary)
            if survivesPowerCut { try check(fsync(file.number), "fsync", temporary) }
            try check(renameat(number, temporary, number, name), "renameat", name)
            return result
        } catch {
            remove(temporary)
            throw error
        }
    }

    /// Removes the file `name`; one that is gone already is fine.
    package func remove(_ name: String) { _ = unlinkat(number, name, 0) }

    /// Whether there is a file `name`, or its record.
    package func has(_ name: String) -> Bool {
        faccessat(number, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0
            || faccessat(number, "\(name).json", F_OK, AT_SYMLINK_NOFOLLOW) == 0
    }

    /// Makes every name so far survive a power cut, if that is asked for.
    package func sync() throws(SystemError) {
        guard survivesPowerCut else { return }
        try SystemError.check(fsync(number), "fsync", on: directory.path)
    }

    /// Removes the content `name`, unless the record of an earlier drop names it.
    package func removeContent(_ name: String, unlessNamedBy record: String) {
        guard faccessat(number, record, F_OK, AT_SYMLINK_NOFOLLOW) != 0, errno == ENOENT
        else { return }
        remove(name)
    }

    private func fill(
        _ file: Int32,
        _ temporary: String,
        expecting expected: Int64,
        _ next: (UnsafeMutableRawBufferPointer) throws -> Int
    ) throws -> Int64 {
        // What malloc maps anew each time costs more than the calls that it saves.
        let size = expected <= Self.smallContent ? 64 << 10 : 256 << 10
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 4096)
        defer { buffer.deallocate() }
        var length: Int64 = 0
        while true {
            let count: Int
            do { count = try next(buffer) } catch { throw DropContentError(underlying: error) }
            guard count > 0 else { return length }
            try write(UnsafeRawBufferPointer(rebasing: buffer[..<count]), to: file, temporary)
            length += Int64(count)
        }
    }

    /// Bytes of content that is copied by few calls in any case.
    private static let smallContent: Int64 = 1 << 20

    private func write(
        _ bytes: UnsafeRawBufferPointer,
        to file: Int32,
        _ temporary: String
    ) throws(SystemError) {
        var rest = bytes
        while !rest.isEmpty {
            let written = Glibc.write(file, rest.baseAddress, rest.count)
            if written < 0, errno == EINTR { continue }
            guard written > 0 else {
                throw SystemError("write", on: directory.path(of: temporary))
            }
            rest = .init(rebasing: rest[written...])
        }
    }

    /// A hidden name for `name`'s file until it is whole.
    private static func temporary(for name: String) -> String { ".\(name).part" }

    /// Removes what an earlier crash left.
    private func removeLeft(_ temporary: String) throws(SystemError) {
        guard unlinkat(number, temporary, 0) == 0 || errno == ENOENT else {
            throw SystemError("unlinkat", on: directory.path(of: temporary))
        }
    }

    /// Syncs a file through an open of its own: the kernel tells a lost write once to each open, and
    /// whoever lent its descriptor must still hear of it.
    private func syncFile(_ name: String) throws(SystemError) {
        let opened = openat(number, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
        let file = Descriptor(owning: try check(opened, "openat", name))
        try check(fsync(file.number), "fsync", name)
    }

    @discardableResult
    private func check(_ result: Int32, _ call: String, _ name: String) throws(SystemError) -> Int32
    {
        try SystemError.check(result, call, on: directory.path(of: name))
    }
}
