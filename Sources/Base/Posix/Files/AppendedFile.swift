// Files that several processes add lines to: event files and the queue of a webhook.
//
// Not part of the spool's promises, and so not behind `Disk`: nothing here is made durable. Invariant:
// a line is written whole by one call or its file ends in a broken line, which the next one leaves
// alone.

import CSpoolgateLinux
import Glibc

/// A file open for adding to its end.
///
/// Any thread.
package final class AppendedFile: Sendable {
    /// Its path as opened.
    package let path: String
    /// The open descriptor.
    package let descriptor: Descriptor
    /// Whether the last line could not be written whole.
    private let isBroken = Monitor(false)

    /// Opens a file, making it if it is not there.
    ///
    /// Never waits, whatever has that name.
    ///
    /// - Parameters:
    ///   - name: the file: its path, or its name in a directory.
    ///   - directory: where its name is; a symbolic link is none then (ELOOP): who owns the directory could
    ///     have put it there for root to follow.
    ///   - mode: its permissions, if it is made.
    ///   - owner: who it is to belong to, if it is made; only root can give files away.
    /// - Throws: where it cannot be opened or made.
    package init(
        path name: String,
        in directory: Directory? = nil,
        mode: UInt32,
        owner: UInt32? = nil
    ) throws(SystemError) {
        path = directory?.path(of: name) ?? name
        let parent = directory?.descriptor.number ?? AT_FDCWD
        let linkFlag = directory == nil ? 0 : O_NOFOLLOW
        // Readable as well: its end is looked at where a line may have broken.
        let flags = linkFlag | O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY
        var number = openat(parent, name, flags)
        if number < 0, errno == ENOENT {
            number = openat(parent, name, flags | O_CREAT, mode)
            if number >= 0, let owner, geteuid() == 0 { _ = fchown(number, owner, gid_t.max) }
        }
        descriptor = Descriptor(owning: try SystemError.check(number, "open", on: path))
    }

    /// Adds a line, its end included, by one call.
    package func add(line: String) throws(SystemError) {
        // Behind a broken line the next one begins on a line of its own.
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

    /// Makes a directory for such files, mode 0700; one that is there already is fine.
    ///
    /// - Parameters:
    ///   - path: the directory.
    ///   - owner: who it is to belong to, if it is made; only root can give it away.
    /// - Throws: where it cannot be made.
    package static func makeDirectory(path: String, owner: UInt32? = nil) throws(SystemError) {
        if mkdir(path, 0o700) == 0 {
            if let owner, geteuid() == 0 { _ = lchown(path, owner, gid_t.max) }
        } else if errno != EEXIST {
            throw SystemError("mkdir", on: path)
        }
    }

    /// Whether its path still leads to it.
    package var isInPlace: Bool {
        guard let identity = FileIdentity(of: descriptor.number) else { return false }
        return FileIdentity(of: path) == identity
    }

    /// Bytes it has.
    package var size: Int64 {
        (try? descriptor.status(subject: path))?.size ?? 0
    }
}
