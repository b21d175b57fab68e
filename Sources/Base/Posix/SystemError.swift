// Errors of system calls.

import Glibc

/// One failed system call.
package struct SystemError: Error, Sendable, Equatable, CustomStringConvertible {
    package var call: String
    /// The subject of the call: a path, an address, or a description of a descriptor.
    package var subject: String
    package var errno: Int32

    /// Creates an error from its parts.
    package init(call: String, subject: String, errno: Int32) {
        self.call = call
        self.subject = subject
        self.errno = errno
    }

    /// Creates an error from `errno`.
    ///
    /// This call must directly follow the failed call.
    package init(_ call: String, on subject: @autoclosure () -> String) {
        // Read before `subject` allocates a string, because the allocation may change `errno`.
        let number = Glibc.errno
        self.init(call: call, subject: subject(), errno: number)
    }

    /// The call, the subject and the reason, such as `openat /var/spool/x: No space left on device`.
    package var description: String { "\(call) \(subject): \(reason)" }

    /// The error number for a missing name.
    package static let gone = ENOENT

    /// The error number for a directory whose path leads to another directory since it was opened.
    package static let replaced = ESTALE

    /// The error number for content that the disk lost, and for other I/O errors.
    package static let lost = EIO

    /// The error number for a shared file system that no longer accepts this host's writes ("fenced off").
    package static let fenced = ESHUTDOWN

    /// Whether a shared file system may have fenced off this host or be gone.
    package var mayBeFenced: Bool { [EIO, ESHUTDOWN, ENOTCONN, ESTALE, EBADF].contains(errno) }

    /// The error number for a name that does not refer to a regular file.
    ///
    /// The kernel itself has no such number.
    package static let notRegular = EMEDIUMTYPE

    /// The error number for a file that another process has locked.
    package static let inUse = EAGAIN

    /// The error number for a file that has reached its maximum size.
    package static let tooLarge = EFBIG

    package var isNotRegular: Bool { errno == Self.notRegular }

    /// Whether a connection was refused because the socket is missing or no process listens on it.
    package var isRefusal: Bool { [ENOENT, ECONNREFUSED].contains(errno) }

    package var isDenial: Bool { [EACCES, EPERM].contains(errno) }

    package var isReadOnly: Bool { errno == EROFS }

    /// Whether the disk, a quota or a file's maximum size is exhausted.
    package var isFull: Bool { errno == ENOSPC || errno == EDQUOT || errno == Self.tooLarge }

    /// Whether a file name may have been refused for its length, characters or encoding.
    package var isOfName: Bool { [ENAMETOOLONG, EINVAL, EILSEQ].contains(errno) }

    /// Whether the process may have no access to a file, or was not given the file's descriptor.
    package var mayBeForbidden: Bool { [EACCES, EPERM, EINVAL].contains(errno) }

    /// The remedy for an error whose `isFull` is true, as a clause.
    package var roomRemedy: String {
        errno == Self.tooLarge
            ? "raise this process's limit on file sizes (LimitFSIZE= of the service, ulimit -f), or use a file "
                + "system that allows larger files"
            : "make room there, or raise this user's disk quota"
    }

    /// Whether the process or the system has run out of descriptors.
    package var isExhausted: Bool { errno == EMFILE || errno == ENFILE }

    /// Throws if a call's result is negative; otherwise returns it.
    @discardableResult
    static func check(
        _ result: Int32,
        _ call: String,
        on subject: @autoclosure () -> String
    ) throws(SystemError) -> Int32 {
        guard result >= 0 else { throw SystemError(call, on: subject()) }
        return result
    }

    package var reason: String {
        if isNotRegular { return "not a regular file" }
        var text = [CChar](repeating: 0, count: 256)
        guard strerror_r(errno, &text, text.count) == 0 else { return "error \(errno)" }
        return String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }
}

extension Result {
    /// The error; nil after a success.
    package var failure: Failure? { if case .failure(let error) = self { error } else { nil } }
}
