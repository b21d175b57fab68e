// An open directory; `Disk` makes changes.
//
// Invariant: names are relative to the directory that was opened, even after the directory was moved or replaced.

import Glibc

/// A thread-safe open directory.
package final class Directory: Sendable {
    /// The path as opened, for messages.
    package let path: String
    let descriptor: Descriptor

    /// Opens the directory at `path`.
    package init(path: String) throws(SystemError) {
        let number = openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        descriptor = Descriptor(owning: try SystemError.check(number, "open", on: path))
        self.path = path
    }

    /// Opens the directory `name` in `parent`; a symbolic link is refused.
    package init(_ name: String, in parent: Directory) throws(SystemError) {
        let flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW
        let number = openat(parent.descriptor.number, name, flags)
        path = parent.path(of: name)
        descriptor = Descriptor(owning: try SystemError.check(number, "openat", on: path))
    }

    package var name: String { String(path.split(separator: "/").last ?? "") }

    /// The effective user ID of this process.
    package static var user: UInt32 { geteuid() }

    /// The process ID of this process, as in /proc.
    package static var process: Int32 { getpid() }

    /// Returns the path of a name in the directory, for messages.
    package func path(of name: String) -> String { "\(path)/\(name)" }

    /// Opens an existing regular file for reading and, if `forWriting`, writing; returns nil if the file is missing.
    ///
    /// Never follows a symbolic link, and never blocks, whatever kind of file the name refers to.
    ///
    /// - Throws: `SystemError`; its `isNotRegular` is true if the name does not refer to a regular file.
    package func open(
        _ name: String,
        forWriting: Bool = false
    ) throws(SystemError) -> Descriptor? {
        try open(name, forWriting ? O_RDWR : O_RDONLY)
    }

    /// Opens an existing regular file like `open`, but only for appending (O_APPEND).
    package func openForAppending(_ name: String) throws(SystemError) -> Descriptor? {
        try open(name, O_WRONLY | O_APPEND)
    }

    private func open(_ name: String, _ mode: Int32) throws(SystemError) -> Descriptor? {
        let flags = mode | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY
        let number = openat(descriptor.number, name, flags)
        guard number >= 0 else {
            // The name refers to a link, a directory, a socket, or a device without a driver.
            if [ELOOP, EISDIR, ENXIO, ENODEV].contains(errno) { throw notRegular(name) }
            if errno == ENOENT { return nil }
            throw SystemError("openat", on: path(of: name))
        }
        let opened = Descriptor(owning: number)
        guard try opened.status(subject: path(of: name)).isRegular else { throw notRegular(name) }
        return opened
    }

    /// Returns the status of a file, or nil if the file is missing.
    package func status(of name: String) throws(SystemError) -> FileStatus? {
        var raw = stat()
        if fstatat(descriptor.number, name, &raw, AT_SYMLINK_NOFOLLOW) == 0 {
            return FileStatus(raw)
        }
        if errno == ENOENT { return nil }
        throw SystemError("fstatat", on: path(of: name))
    }

    /// Returns all names in the directory, in no particular order.
    package func names() throws(SystemError) -> [String] {
        let reader = try reader()
        var names: [String] = []
        while let name = try reader.next() { names.append(name) }
        return names
    }

    /// Returns a reader for the names of a very large directory.
    package func reader() throws(SystemError) -> DirectoryReader { try DirectoryReader(self) }

    /// Returns the free space of the file system.
    package func space() throws(SystemError) -> FileSystemSpace {
        var raw = statvfs()
        try SystemError.check(fstatvfs(descriptor.number, &raw), "fstatvfs", on: path)
        return FileSystemSpace(
            freeBytes: Int64(clamping: raw.f_bavail) * Int64(clamping: raw.f_frsize),
            // A file system that allocates inodes dynamically reports zero.
            freeFiles: raw.f_files == 0 ? nil : Int64(clamping: raw.f_favail)
        )
    }

    /// Returns the status of the directory itself.
    package func status() throws(SystemError) -> FileStatus {
        try descriptor.status(subject: path)
    }

    /// Throws an error if this process may not list, change and search the directory.
    package func checkAccess() throws(SystemError) {
        let rights = R_OK | W_OK | X_OK
        let result = faccessat(descriptor.number, ".", rights, AT_EACCESS)
        try SystemError.check(result, "faccessat", on: path)
    }

    private func notRegular(_ name: String) -> SystemError {
        SystemError(call: "openat", subject: path(of: name), errno: SystemError.notRegular)
    }
}

/// The free space of a file system, for an unprivileged user.
package struct FileSystemSpace: Sendable, Equatable {
    package var freeBytes: Int64
    /// The number of files that can still be created, or nil if the file system has no such limit.
    package var freeFiles: Int64?
}
