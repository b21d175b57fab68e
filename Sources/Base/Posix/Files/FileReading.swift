// Reading, measuring and locking an open file: what leaves the disk as it is.
//
// Locks are "open file description" locks (fcntl(2)): the kernel drops them when the last descriptor
// of the opening is closed, also at kill -9, and they exclude threads as well as processes.

import CSpoolgateLinux
import Glibc

/// What the file system knows of a file.
package struct FileStatus: Sendable, Equatable {
    /// Bytes of content.
    package var size: Int64
    /// Bytes taken on the disk.
    package var diskUsage: Int64
    /// When its content last changed.
    package var modified: WallTime
    /// When its content, its permissions or its names last changed.
    package var changed: WallTime
    /// How many names it has; 0: it was removed.
    package var names: Int
    /// Which file it is on its file system: two names with the same are one file.
    package var file: UInt64
    /// Whether it is a regular file.
    package var isRegular: Bool
    /// Whether it is a directory.
    package var isDirectory: Bool
    /// The user it belongs to.
    package var owner: UInt32
    /// Its permission bits.
    package var permissions: UInt32

    init(_ raw: stat) {
        size = Int64(raw.st_size)
        diskUsage = Int64(raw.st_blocks) * 512
        modified = WallTime(seconds: Int64(raw.st_mtim.tv_sec))
        changed = WallTime(seconds: Int64(raw.st_ctim.tv_sec))
        names = Int(raw.st_nlink)
        file = UInt64(raw.st_ino)
        isRegular = raw.st_mode & S_IFMT == S_IFREG
        isDirectory = raw.st_mode & S_IFMT == S_IFDIR
        owner = raw.st_uid
        permissions = raw.st_mode & 0o7777
    }
}

extension Descriptor {
    /// What the file system knows of the open file.
    package borrowing func status(
        subject: @autoclosure () -> String
    ) throws(SystemError) -> FileStatus {
        var raw = stat()
        try SystemError.check(fstat(number, &raw), "fstat", on: subject())
        return FileStatus(raw)
    }

    /// Reads from `position` on until `buffer` is full or the file ends.
    ///
    /// - Returns: bytes read; less than asked only at the end of the file.
    package borrowing func read(
        into buffer: UnsafeMutableRawBufferPointer,
        at position: Int64,
        subject: @autoclosure () -> String
    ) throws(SystemError) -> Int {
        var filled = 0
        while filled < buffer.count {
            let free = UnsafeMutableRawBufferPointer(rebasing: buffer[filled...])
            let count = pread(number, free.baseAddress, free.count, off_t(position) + filled)
            if count < 0 {
                if errno == EINTR { continue }
                throw SystemError("pread", on: subject())
            }
            if count == 0 { break }
            filled += count
        }
        return filled
    }

    /// Reads up to `count` bytes from `position` on; fewer only at the end of the file.
    package borrowing func bytes(
        at position: Int64,
        count: Int,
        subject: @autoclosure () -> String
    ) throws(SystemError) -> [UInt8] {
        // The one empty array that all have would be written to, which is a race for the sanitizer.
        guard count > 0 else { return [] }
        var failure: SystemError?
        let bytes = [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
            do throws(SystemError) {
                filled = try read(
                    into: UnsafeMutableRawBufferPointer(buffer),
                    at: position,
                    subject: subject()
                )
            } catch { failure = error }
        }
        if let failure { throw failure }
        return bytes
    }

    /// Has the kernel forget what it has cached of the file and need not write (posix_fadvise(2)).
    package borrowing func forgetCached() {
        // Advice: where it is not taken, reading is as it was.
        _ = posix_fadvise(number, 0, 0, POSIX_FADV_DONTNEED)
    }

    /// Takes an exclusive lock on the open file, without waiting; it lasts until the file is closed.
    ///
    /// - Returns: false if another opening of the file has it.
    package borrowing func tryLock(
        subject: @autoclosure () -> String
    ) throws(SystemError) -> Bool {
        try SystemError.check(spoolgate_try_lock(number), "fcntl", on: subject()) == 0
    }

    /// Takes an exclusive lock on the open file, waiting for it.
    package borrowing func lock(subject: @autoclosure () -> String) throws(SystemError) {
        // Not F_OFD_SETLKW: where a process is killed in it, ceph-fuse may tell the server to forget a request
        // that the server has granted, and then the lock is nobody's until the mount ends.
        while try !tryLock(subject: subject()) { Thread.pause(.milliseconds(2)) }
    }

    /// Whether another opening of the file has a lock on it.
    package borrowing func isLockedElsewhere(
        subject: @autoclosure () -> String
    ) throws(SystemError) -> Bool {
        try SystemError.check(spoolgate_is_locked(number), "fcntl", on: subject()) == 1
    }

    /// Sets a mark on the open file, or takes it back.
    ///
    /// Any number of openings can have one at a time, whoever has the lock; it lasts until the file is
    /// closed.
    package borrowing func setMark(
        _ isSet: Bool,
        subject: @autoclosure () -> String
    ) throws(SystemError) {
        try SystemError.check(spoolgate_set_mark(number, isSet ? 1 : 0), "fcntl", on: subject())
    }

    /// Whether another opening of the file has a mark on it.
    package borrowing func isMarkedElsewhere(
        subject: @autoclosure () -> String
    ) throws(SystemError) -> Bool {
        try SystemError.check(spoolgate_is_marked(number), "fcntl", on: subject()) == 1
    }
}
