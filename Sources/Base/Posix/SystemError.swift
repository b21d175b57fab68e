// A failed system call, as an error that says what was attempted on what.
//
// Below the program's own errors everything that the kernel refuses becomes one of these; nobody
// above looks at the C `errno` variable. The text is the C library's own.

import Glibc

/// One failed call.
package struct SystemError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The C function's name.
    package var call: String
    /// What it was applied to: a path, an address, or what a descriptor stands for.
    package var subject: String
    /// The error number.
    package var errno: Int32

    /// Makes an error from its parts.
    package init(call: String, subject: String, errno: Int32) {
        self.call = call
        self.subject = subject
        self.errno = errno
    }

    /// Takes the error number that the call just made left behind; use it before any other call.
    package init(_ call: String, on subject: @autoclosure () -> String) {
        // Read before `subject` builds a string: an allocation may change it.
        let number = Glibc.errno
        self.init(call: call, subject: subject(), errno: number)
    }

    /// `openat /var/spool/x: No space left on device`.
    package var description: String { "\(call) \(subject): \(reason)" }

    /// The error number of a name that does not exist.
    package static let gone = ENOENT

    /// The error number of content that the disk could not keep.
    package static let lost = EIO

    /// The error number of a host that its file system has shut out.
    package static let fenced = ESHUTDOWN

    /// Whether a call fails so where the file system of several hosts has shut this one out, or is gone.
    package var mayBeFenced: Bool { [EIO, ESHUTDOWN, ENOTCONN, ESTALE, EBADF].contains(errno) }

    /// The error number of a name that is no regular file; the kernel has none for that.
    package static let notRegular = EMEDIUMTYPE

    /// The error number of a file that somebody else has locked.
    package static let inUse = EAGAIN

    /// The error number of a file that has all it may have.
    package static let tooLarge = EFBIG

    /// Whether a name is no regular file: a symbolic link, a directory, a pipe or the like.
    package var isNotRegular: Bool { errno == Self.notRegular }

    /// Whether a socket is missing, or no process listens on it.
    package var isRefusal: Bool { [ENOENT, ECONNREFUSED].contains(errno) }

    /// Whether this process may not do what was attempted.
    package var isDenial: Bool { [EACCES, EPERM].contains(errno) }

    /// Whether the file system, or this process's view of it, cannot be written to.
    package var isReadOnly: Bool { errno == EROFS }

    /// Whether the disk, somebody's share of it, or what one file may hold is used up.
    package var isFull: Bool { errno == ENOSPC || errno == EDQUOT || errno == Self.tooLarge }

    /// Whether a file system may have refused the name of a file: its length, its characters or its encoding.
    package var isOfName: Bool { [ENAMETOOLONG, EINVAL, EILSEQ].contains(errno) }

    /// Whether the process may not use a file, or got none where it was to get one.
    package var mayBeForbidden: Bool { [EACCES, EPERM, EINVAL].contains(errno) }

    /// What makes room again, of an error that is `isFull`: a clause for its sentence.
    package var roomRemedy: String {
        errno == Self.tooLarge
            ? "raise this process's limit of file sizes (LimitFSIZE= of the service, ulimit -f), or use a file "
                + "system with larger files"
            : "free space and files there, or raise this user's share (disk quota) of it"
    }

    /// Whether the process, or the system, has no descriptor left.
    package var isExhausted: Bool { errno == EMFILE || errno == ENFILE }

    /// Throws the error of a call whose result is -1, and else gives the result.
    @discardableResult
    static func check(
        _ result: Int32,
        _ call: String,
        on subject: @autoclosure () -> String
    ) throws(SystemError) -> Int32 {
        guard result >= 0 else { throw SystemError(call, on: subject()) }
        return result
    }

    /// The C library's sentence for the error number.
    package var reason: String {
        if isNotRegular { return "it is no regular file" }
        var text = [CChar](repeating: 0, count: 256)
        guard strerror_r(errno, &text, text.count) == 0 else { return "error \(errno)" }
        return String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }
}
