// Puts files into a directory that other programs read: link or copy, rename, sync.
//
// Invariant: a name without a leading dot appears only when a complete file is renamed. The file is then durable if
// the drop must survive a power failure.

import Glibc

/// Reports that the content for a file could not be read, so that the directory is not at fault.
package struct DropContentError: Error {
    package var underlying: any Error
}

/// An open directory in which one thread drops files.
///
/// All names are relative to the directory.
package struct DropFiles: ~Copyable {
    private let directory: Directory
    private let number: Int32
    private let survivesPowerCut: Bool

    /// Opens the directory `path`, which must exist.
    ///
    /// If `survivesPowerCut` is false, the files are not made durable and nothing is synced.
    package init(path: String, survivesPowerCut: Bool = true) throws(SystemError) {
        self.survivesPowerCut = survivesPowerCut
        directory = try Directory(path: path)
        number = directory.descriptor.number
    }

    /// Hard-links the open file `descriptor` as `name`.
    ///
    /// Returns true when the link exists. Returns false and creates no name if the file does not have `length` bytes or
    /// cannot be linked because it is on another file system, belongs to another owner, or cannot have another name.
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
            // If both names are links to the same file, as when a data file is dropped again, rename(2) keeps both.
            remove(temporary)
        } catch {
            remove(temporary)
            throw error
        }
        return true
    }

    /// Creates the file `name` from the bytes that repeated calls of `next` put into a buffer.
    ///
    /// `length` is the expected number of bytes, or nil if unknown. `next` must fill the buffer from its start and
    /// return the number of bytes, or 0 at the end of the content.
    ///
    /// - Returns: the number of bytes written.
    /// - Throws: `SystemError`, or `DropContentError` with the error of `next`. No incomplete file then remains.
    package func write(
        as name: String,
        expecting length: Int64? = nil,
        _ next: (UnsafeMutableRawBufferPointer) throws -> Int
    ) throws -> Int64 {
        try make(name) { file, temporary in
            try fill(file, temporary, expecting: length ?? .max, next)
        }
    }

    /// Creates the file `name`.
    ///
    /// If an error is thrown, no incomplete file remains.
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
            // The umask has restricted the mode that was passed to openat.
            try check(fchmod(file.number, 0o640), "fchmod", temporary)
            if survivesPowerCut { try check(fsync(file.number), "fsync", temporary) }
            try check(renameat(number, temporary, number, name), "renameat", name)
            return result
        } catch {
            remove(temporary)
            throw error
        }
    }

    /// Removes the file `name` if that name exists.
    package func remove(_ name: String) { _ = unlinkat(number, name, 0) }

    /// Whether the file `name` or its record `name.json` exists.
    package func has(_ name: String) -> Bool {
        faccessat(number, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0
            || faccessat(number, "\(name).json", F_OK, AT_SYMLINK_NOFOLLOW) == 0
    }

    /// Makes all names durable if the files must survive a power failure.
    package func sync() throws(SystemError) {
        guard survivesPowerCut else { return }
        try SystemError.check(fsync(number), "fsync", on: directory.path)
    }

    /// Removes the content file `name`, unless an earlier drop with the same name has left a file `record`.
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
        // malloc maps a large buffer anew each time. For little content, the mapping costs more than the saved calls.
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

    /// The maximum number of bytes that need only a few calls, regardless of the buffer.
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

    /// The reason why a file was not stored, with the fix.
    package static func reason(of error: any Error) -> String {
        switch error {
        case let error as SystemError where error.isFull: "\(error); \(error.roomRemedy)"
        case let error as SystemError:
            "\(error); check that the directory exists and this user may write to it"
        case let error as DropContentError: "cannot read the content: \(error.underlying)"
        default: "\(error)"
        }
    }

    /// Returns the name of an incomplete file.
    private static func temporary(for name: String) -> String { ".\(name).part" }

    private func removeLeft(_ temporary: String) throws(SystemError) {
        guard unlinkat(number, temporary, 0) == 0 || errno == ENOENT else {
            throw SystemError("unlinkat", on: directory.path(of: temporary))
        }
    }

    /// Syncs a file through its own descriptor.
    ///
    /// The kernel reports a lost write once for each open, and the owner of the lent descriptor must still receive the
    /// error.
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
