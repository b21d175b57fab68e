// A destination that is not a regular file, such as a device or a FIFO.
//
// The invariant: bytes are written in order and cannot be taken back; there is no `.part` file.

import Glibc
import SpoolgatePosix
import SpoolgateTextFormats

/// A destination that is written to directly, without a `.part` file; used by one thread.
final class DirectFile {
    private let path: String
    private let file: Descriptor
    private let isStopped: () -> Bool

    /// The interval at which waits check for a stop or a reader.
    private static let look = Duration.milliseconds(100)

    static func isOne(_ path: String) -> Bool {
        descriptor(path) != nil || [.pipe, .other].contains(FileKind(of: path))
    }

    /// Opens the destination; waits until a FIFO has a reader, or throws `.paused` if the download is stopped.
    init(_ path: String, isStopped: @escaping () -> Bool) throws(ContentFault) {
        (self.path, self.isStopped) = (path, isStopped)
        while true {
            // A blocking write would keep the download from being stopped.
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

    /// Returns the open descriptor that a path such as `/dev/stdout` names.
    ///
    /// The descriptor may be of a regular file.
    private static func descriptor(_ path: String) -> Int32? {
        if path == "/dev/stdout" { return STDOUT_FILENO }
        if path == "/dev/stderr" { return STDERR_FILENO }
        for prefix in ["/dev/fd/", "/proc/self/fd/"] where path.beginsWithBytes(of: prefix) {
            return Int32(digits: path.utf8.dropFirst(prefix.utf8.count))
        }
        return nil
    }

    /// Writes all bytes, waiting for a slow reader.
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

    /// Makes the written bytes durable if the destination has storage.
    func finish() throws(ContentFault) {
        // EINVAL: a device without storage.
        guard fsync(file.number) == 0 || errno == EINVAL || errno == ENOTSUP else {
            throw .of("fsync", path)
        }
    }

    /// Calls write(2) without raising SIGPIPE, which the program may not handle; returns the result and `errno`.
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
    /// Returns whether `Destination.file(path)` is written to directly, without `PATH.part`.
    ///
    /// This is true for a file that is not regular, and for the name of an open descriptor, such as `/dev/stdout`.
    package static func writesDirectly(to path: String) -> Bool { DirectFile.isOne(path) }
}
