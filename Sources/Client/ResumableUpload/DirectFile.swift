// A destination that is no regular file: a device, a FIFO. It is written to in order, as standard output is.
//
// The invariant: what was written is gone from here; there is no `.part` and no other name.

import Glibc
import SpoolgatePosix
import SpoolgateTextFormats

/// A destination that is written to directly.
///
/// Used by one thread.
final class DirectFile {
    private let path: String
    private let file: Descriptor
    private let isStopped: () -> Bool

    /// Between two looks whether it was stopped, and whether there is a reader.
    private static let look = Duration.milliseconds(100)

    /// Whether a download to `path` is written to it directly: it is no regular file, or a name of an open one.
    static func isOne(_ path: String) -> Bool {
        descriptor(path) != nil || [.pipe, .other].contains(FileKind(of: path))
    }

    /// Opens it; a FIFO without a reader is waited for.
    ///
    /// - Throws: a fault of kind `.paused` if it was stopped meanwhile.
    init(_ path: String, isStopped: @escaping () -> Bool) throws(ContentFault) {
        (self.path, self.isStopped) = (path, isStopped)
        while true {
            // A write that blocked would keep the download from being stopped.
            let flags = O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY
            let number =
                Self.descriptor(path).map { fcntl($0, F_DUPFD_CLOEXEC, 0) } ?? open(path, flags)
            if number >= 0 {
                file = Descriptor(owning: number)
                return
            }
            let error = SystemError("open", on: path)
            guard error.errno == ENXIO, FileKind(of: path) == .pipe else {
                throw ContentFault(kind: .unreadable, reason: "\(error); use another file")
            }
            guard !isStopped() else { throw Self.stopped }
            SpoolgatePosix.Thread.pause(Self.look)
        }
    }

    /// The number of an open file that `path` is a name of; what is behind it may be a regular file.
    private static func descriptor(_ path: String) -> Int32? {
        if path == "/dev/stdout" { return STDOUT_FILENO }
        if path == "/dev/stderr" { return STDERR_FILENO }
        for prefix in ["/dev/fd/", "/proc/self/fd/"] where path.beginsWithBytes(of: prefix) {
            return Int32(digits: path.utf8.dropFirst(prefix.utf8.count))
        }
        return nil
    }

    /// Writes all of `bytes`, and waits for a reader who is slow.
    func write(_ bytes: UnsafeRawBufferPointer) throws(ContentFault) {
        var rest = bytes
        while !rest.isEmpty {
            let (count, error) = Self.write(rest, to: file.number)
            if count > 0 {
                rest = .init(rebasing: rest[count...])
                continue
            }
            switch error {
            case EINTR: continue
            case EAGAIN:
                guard !isStopped() else { throw Self.stopped }
                var entry = pollfd(fd: file.number, events: Int16(POLLOUT), revents: 0)
                poll(&entry, 1, Int32(Self.look.wholeMilliseconds))
            default:
                let number = count < 0 ? error : EIO
                let failure = SystemError(call: "write", subject: path, errno: number)
                throw ContentFault(
                    kind: .unreadable,
                    reason:
                        "\(failure); the content written so far cannot be taken back: "
                        + "check it, and start again"
                )
            }
        }
    }

    /// Makes what was written durable if it is a disk.
    func finish() throws(ContentFault) {
        // EINVAL: a device that keeps nothing.
        guard fsync(file.number) == 0 || errno == EINVAL || errno == ENOTSUP else {
            throw .of("fsync", path)
        }
    }

    /// write(2) without a SIGPIPE, which a program may not have expected.
    private static func write(_ bytes: UnsafeRawBufferPointer, to number: Int32) -> (Int, Int32) {
        var (pipe, before) = (sigset_t(), sigset_t())
        sigemptyset(&pipe)
        sigaddset(&pipe, SIGPIPE)
        pthread_sigmask(SIG_BLOCK, &pipe, &before)
        let count = Glibc.write(number, bytes.baseAddress, bytes.count)
        let error = errno
        if count < 0, error == EPIPE {
            var atOnce = timespec()
            sigtimedwait(&pipe, nil, &atOnce)
        }
        pthread_sigmask(SIG_SETMASK, &before, nil)
        return (count, error)
    }

    private static var stopped: ContentFault {
        ContentFault(kind: .paused, reason: "stopped while writing")
    }
}

extension Download {
    /// Whether `Destination.file(path)` is written to directly, without `PATH.part`: no regular file, or a name of an
    /// open one such as `/dev/stdout`.
    package static func writesDirectly(to path: String) -> Bool { DirectFile.isOne(path) }
}
