// An open directory, from which files are reached without walking its path again.
//
// It only looks; what changes the disk is in `Disk`. Invariant: names are relative to the directory
// that was opened, also after somebody has moved or replaced it.

import Glibc

/// A directory held open.
///
/// Any thread.
package final class Directory: Sendable {
    /// Its path as opened, for messages.
    package let path: String
    let descriptor: Descriptor

    /// Opens the directory at `path`.
    package init(path: String) throws(SystemError) {
        let number = openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        descriptor = Descriptor(owning: try SystemError.check(number, "open", on: path))
        self.path = path
    }

    /// Opens the directory `name` below `parent`; a symbolic link is none.
    package init(_ name: String, in parent: Directory) throws(SystemError) {
        let flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW
        let number = openat(parent.descriptor.number, name, flags)
        path = parent.path(of: name)
        descriptor = Descriptor(owning: try SystemError.check(number, "openat", on: path))
    }

    /// The last part of its path.
    package var name: String { String(path.split(separator: "/").last ?? "") }

    /// The user as which this process reaches files.
    package static var user: UInt32 { geteuid() }

    /// This process's number, as it stands in /proc.
    package static var process: Int32 { getpid() }

    /// The path of a name below it, for messages.
    package func path(of name: String) -> String { "\(path)/\(name)" }

    /// Opens an existing regular file, for reading and perhaps writing; nil if there is none.
    ///
    /// Never follows a link and never waits, whatever has that name.
    ///
    /// - Throws: `.isNotRegular` for what is no regular file.
    package func open(
        _ name: String,
        forWriting: Bool = false
    ) throws(SystemError) -> Descriptor? {
        try open(name, forWriting ? O_RDWR : O_RDONLY)
    }

    /// As above, for adding bytes at the end and nothing else (O_APPEND).
    package func openForAppending(_ name: String) throws(SystemError) -> Descriptor? {
        try open(name, O_WRONLY | O_APPEND)
    }

    private func open(_ name: String, _ mode: Int32) throws(SystemError) -> Descriptor? {
        let flags = mode | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY
        let number = openat(descriptor.number, name, flags)
        guard number >= 0 else {
            // A link, a directory, a socket or a device without a driver.
            if [ELOOP, EISDIR, ENXIO, ENODEV].contains(errno) { throw notRegular(name) }
            if errno == ENOENT { return nil }
            throw SystemError("openat", on: path(of: name))
        }
        let opened = Descriptor(owning: number)
        guard try opened.status(subject: path(of: name)).isRegular else { throw notRegular(name) }
        return opened
    }

    /// What the file system knows of a file below it; nil if there is none.
    package func status(of name: String) throws(SystemError) -> FileStatus? {
        var raw = stat()
        if fstatat(descriptor.number, name, &raw, AT_SYMLINK_NOFOLLOW) == 0 {
            return FileStatus(raw)
        }
        if errno == ENOENT { return nil }
        throw SystemError("fstatat", on: path(of: name))
    }

    /// Every name in it, in no order.
    package func names() throws(SystemError) -> [String] {
        let reader = try reader()
        var names: [String] = []
        while let name = try reader.next() { names.append(name) }
        return names
    }

    /// Reads its names one after the other, for a directory that may have very many.
    package func reader() throws(SystemError) -> DirectoryReader { try DirectoryReader(self) }

    /// What is free on its file system.
    package func space() throws(SystemError) -> FileSystemSpace {
        var raw = statvfs()
        try SystemError.check(fstatvfs(descriptor.number, &raw), "fstatvfs", on: path)
        return FileSystemSpace(
            freeBytes: Int64(clamping: raw.f_bavail) * Int64(clamping: raw.f_frsize),
            // A file system that makes its inodes as it needs them says zero of zero.
            freeFiles: raw.f_files == 0 ? nil : Int64(clamping: raw.f_favail)
        )
    }

    /// What the file system knows of the directory itself.
    package func status() throws(SystemError) -> FileStatus {
        try descriptor.status(subject: path)
    }

    private func notRegular(_ name: String) -> SystemError {
        SystemError(call: "openat", subject: path(of: name), errno: SystemError.notRegular)
    }
}

/// What is free on a file system, for a user without privileges.
package struct FileSystemSpace: Sendable, Equatable {
    /// Bytes.
    package var freeBytes: Int64
    /// Files that can still be made; nil if the file system has no such limit.
    package var freeFiles: Int64?
}
