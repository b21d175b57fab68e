// Files to which several processes append lines: event files and the queue of a webhook.
//
// The lines bypass `Disk` because they are not made durable. Invariant: one call writes a whole line. If the call
// fails, the file may end in a broken line, which the next line leaves unchanged.

import CSpoolgateLinux
import Glibc

/// A thread-safe file opened for appending.
package final class AppendedFile: Sendable {
    package let path: String
    package let descriptor: Descriptor
    /// Whether the last line is incomplete.
    private let isBroken = Monitor(false)

    /// Opens a file, creating it if it is missing.
    ///
    /// Never blocks, whatever kind of file `name` refers to.
    ///
    /// - Parameters:
    ///   - name: the path of the file, or its name in `directory`.
    ///   - directory: the file's directory, or nil if `name` is a path. In a directory, a symbolic link is refused
    ///     (ELOOP), because the spool contains none.
    ///   - mode: the permissions of a created file.
    /// - Throws: `SystemError` if the file cannot be opened or created.
    package init(
        path name: String,
        in directory: Directory? = nil,
        mode: UInt32
    ) throws(SystemError) {
        path = directory?.path(of: name) ?? name
        let parent = directory?.descriptor.number ?? AT_FDCWD
        let linkFlag = directory == nil ? 0 : O_NOFOLLOW
        // The file is readable because `UploadJournal` also reads the lines.
        let flags = linkFlag | O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY
        var number = openat(parent, name, flags)
        if number < 0, errno == ENOENT {
            number = openat(parent, name, flags | O_CREAT, mode)
        }
        descriptor = Descriptor(owning: try SystemError.check(number, "open", on: path))
    }

    /// Appends a line and its line end with one call.
    package func add(line: String) throws(SystemError) {
        let isBroken = self.isBroken.update { isBroken in
            defer { isBroken = false }
            return isBroken
        }
        let bytes = Array(((isBroken ? "\n" : "") + line + "\n").utf8)
        let count = write(descriptor.number, bytes, bytes.count)
        if count == bytes.count { return }
        let error =
            count < 0
            ? SystemError("write", on: path)
            : SystemError(call: "write", subject: path, errno: ENOSPC)
        if count > 0 || isBroken { self.isBroken.update { $0 = true } }
        throw error
    }

    /// Creates a directory for appended files, mode 0700, unless the directory exists.
    package static func makeDirectory(path: String) throws(SystemError) {
        guard mkdir(path, 0o700) == 0 || errno == EEXIST else {
            throw SystemError("mkdir", on: path)
        }
    }

    /// Whether the path still refers to this file.
    ///
    /// False after the file has been renamed or removed.
    package var isInPlace: Bool {
        guard let identity = FileIdentity(of: descriptor.number) else { return false }
        return FileIdentity(of: path) == identity
    }

    /// The current size of the file in bytes.
    package var size: Int64 {
        (try? descriptor.status(subject: path))?.size ?? 0
    }
}
