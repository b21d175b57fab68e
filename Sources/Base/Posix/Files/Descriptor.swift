// Owned file descriptors.
//
// Invariant: while the value exists, the number is open and refers to the same file.

import CSpoolgateLinux
import Glibc

/// An owned file descriptor, closed exactly once on every path.
package struct Descriptor: ~Copyable, Sendable {
    /// The descriptor's number, for system calls; do not store it.
    package let number: Int32

    /// Takes ownership of an open descriptor.
    package init(owning number: Int32) {
        precondition(number >= 0, "a descriptor must be open")
        self.number = number
    }

    /// Closes the descriptor and throws any error that the kernel reports only on close(2).
    ///
    /// The descriptor is closed even if an error is thrown.
    package consuming func close() throws(SystemError) {
        let number = self.number
        discard self
        // Linux frees the number even on EINTR, so close must not be called again.
        if Glibc.close(number) != 0 && errno != EINTR {
            throw SystemError("close", on: "descriptor \(number)")
        }
    }

    /// Gives up ownership and returns the number, which the caller must close.
    package consuming func release() -> Int32 {
        let number = self.number
        discard self
        return number
    }

    /// Enlarges a pipe to at least `count` bytes, so that its two sides wake each other less often.
    ///
    /// Does nothing if `number` is not a pipe or the system does not allow the size.
    package static func widenPipe(_ number: Int32, to count: Int) {
        _ = spoolgate_widen_pipe(number, Int32(clamping: count))
    }

    deinit { _ = Glibc.close(number) }
}

/// A pipe, both ends close-on-exec.
struct Pipe: ~Copyable {
    let source: Descriptor
    let sink: Descriptor

    /// `subject` names the pipe's purpose in error messages.
    init(for subject: String) throws(SystemError) {
        var ends: [Int32] = [-1, -1]
        try SystemError.check(spoolgate_pipe(&ends), "pipe2", on: subject)
        source = Descriptor(owning: ends[0])
        sink = Descriptor(owning: ends[1])
    }
}

// MARK: Reading files

// Reads, measures and locks an open file; nothing here changes the disk.
//
// Locks are "open file description" locks (fcntl(2)). Such a lock excludes threads as well as processes. The kernel
// drops the lock with the last descriptor, even on kill -9.

/// The status of a file.
package struct FileStatus: Sendable, Equatable {
    /// The size in bytes.
    package var size: Int64
    /// The disk space that the file uses, in bytes.
    package var diskUsage: Int64
    /// The time of the last change to the file's content.
    package var modified: WallTime
    /// The time of the last change to the file's content, permissions or names.
    package var changed: WallTime
    /// The number of names (hard links); 0 if the file was removed.
    package var names: Int
    /// The inode number.
    ///
    /// Two names with the same number refer to one file.
    package var file: UInt64
    /// The number of the file system; inode numbers are unique only within one.
    package var fileSystem: UInt64
    package var isRegular: Bool
    package var isDirectory: Bool
    package var owner: UInt32
    package var permissions: UInt32

    init(_ raw: stat) {
        size = Int64(raw.st_size)
        diskUsage = Int64(raw.st_blocks) * 512
        modified = WallTime(seconds: Int64(raw.st_mtim.tv_sec))
        changed = WallTime(seconds: Int64(raw.st_ctim.tv_sec))
        names = Int(raw.st_nlink)
        file = UInt64(raw.st_ino)
        fileSystem = UInt64(raw.st_dev)
        isRegular = raw.st_mode & S_IFMT == S_IFREG
        isDirectory = raw.st_mode & S_IFMT == S_IFDIR
        owner = raw.st_uid
        permissions = raw.st_mode & 0o7777
    }
}

extension Descriptor {
    /// Returns the status of the open file.
    package borrowing func status(
        subject: @autoclosure () -> String
    ) throws(SystemError) -> FileStatus {
        var raw = stat()
        try SystemError.check(fstat(number, &raw), "fstat", on: subject())
        return FileStatus(raw)
    }

    /// Reads from `position` until `buffer` is full or the file ends.
    ///
    /// - Returns: the number of bytes read, which is less than the size of `buffer` only at the end of the file.
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

    /// Returns `count` bytes from `position`, or fewer at the end of the file.
    package borrowing func bytes(
        at position: Int64,
        count: Int,
        subject: @autoclosure () -> String
    ) throws(SystemError) -> [UInt8] {
        // Avoids writing to the shared empty array, because the thread sanitizer would report a race.
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

    /// Drops the file's clean pages from the page cache (posix_fadvise(2)).
    package borrowing func forgetCached() {
        _ = posix_fadvise(number, 0, 0, POSIX_FADV_DONTNEED)
    }

    /// Takes an exclusive lock without waiting; the lock lasts until the file is closed.
    ///
    /// - Returns: true if the lock was taken; false if another open file description holds it.
    package borrowing func tryLock(
        subject: @autoclosure () -> String
    ) throws(SystemError) -> Bool {
        try SystemError.check(spoolgate_try_lock(number), "fcntl", on: subject()) == 0
    }

    /// Takes the lock as soon as no other open file description holds it.
    package borrowing func lock(subject: @autoclosure () -> String) throws(SystemError) {
        // Not F_OFD_SETLKW, because if a process is killed during that call, ceph-fuse may make the server forget a
        // request that the server has granted. The lock then has no owner until the file system is unmounted.
        while try !tryLock(subject: subject()) { Thread.pause(.milliseconds(2)) }
    }

    /// Whether another open file description holds a lock.
    package borrowing func isLockedElsewhere(
        subject: @autoclosure () -> String
    ) throws(SystemError) -> Bool {
        try SystemError.check(spoolgate_is_locked(number), "fcntl", on: subject()) == 1
    }

    /// Sets or clears this open file description's mark, which lasts until the description is closed.
    ///
    /// Any number of descriptions can have marks on a file, independently of the lock.
    package borrowing func setMark(
        to isSet: Bool,
        subject: @autoclosure () -> String
    ) throws(SystemError) {
        try SystemError.check(spoolgate_set_mark(number, isSet ? 1 : 0), "fcntl", on: subject())
    }

    /// Whether another open file description has a mark.
    package borrowing func isMarkedElsewhere(
        subject: @autoclosure () -> String
    ) throws(SystemError) -> Bool {
        try SystemError.check(spoolgate_is_marked(number), "fcntl", on: subject()) == 1
    }
}

// MARK: Files in memory

// A file in memory, for libraries that read from descriptors.

/// An owned, unnamed file whose bytes are only in memory.
package struct MemoryFile: ~Copyable, Sendable {
    private let descriptor: Descriptor

    /// Creates an empty file; throws EMFILE, ENFILE or ENOMEM if descriptors or memory are exhausted.
    package init(named name: String) throws(SystemError) {
        let number = try SystemError.check(spoolgate_memory_file(name), "memfd_create", on: name)
        // Makes writes append, regardless of the read position. For a file in memory, this call cannot fail.
        _ = fcntl(number, F_SETFL, O_APPEND)
        descriptor = Descriptor(owning: number)
    }

    /// Takes ownership of a number from `release`.
    package init(owning number: Int32) { descriptor = Descriptor(owning: number) }

    /// Gives up ownership; the caller must close the number or pass it to `init(owning:)`.
    package consuming func release() -> Int32 { descriptor.release() }

    /// Stores bytes, to be read from the start.
    ///
    /// The file must be empty.
    ///
    /// - Throws: `SystemError` if memory is exhausted.
    package func hold(_ bytes: [UInt8]) throws(SystemError) {
        guard write(descriptor.number, bytes, bytes.count) == bytes.count,
            lseek(descriptor.number, 0, SEEK_SET) == 0
        else { throw SystemError("write", on: "\(bytes.count) bytes in memory") }
    }

    /// Empties the file and frees its memory.
    package func clear() throws(SystemError) {
        try SystemError.check(ftruncate(descriptor.number, 0), "ftruncate", on: "a file in memory")
    }
}
