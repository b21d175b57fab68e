// Where the bytes of a download go, in order, and from which offset they can go on.
//
// The invariant: a file has its name only when it is whole and durable.

import Glibc
import SpoolgatePosix

/// The destination of one run.
///
/// Used by the thread of its download.
final class DownloadPlace {
    private enum Kind {
        case file(path: String, part: Int32)
        case pieces(@Sendable ([UInt8]) throws -> Void)
    }

    private let kind: Kind
    /// Bytes that it has.
    private(set) var offset: Int64
    /// Of pieces, which cannot be read again; nil: not wanted.
    private var running: RunningDigests?

    /// Opens it, to go on at `offset` where it can.
    init(_ destination: Download.Destination, at offset: Int64) throws(ContentFault) {
        switch destination.kind {
        case .pieces(let take):
            kind = .pieces(take)
            self.offset = offset
        case .file(let path):
            let part = path + ".part"
            let number = open(part, O_RDWR | O_CREAT | O_CLOEXEC, 0o666)
            guard number >= 0 else { throw Self.fault("open", part) }
            kind = .file(path: path, part: number)
            var status = stat()
            guard fstat(number, &status) == 0 else { throw Self.fault("fstat", part) }
            self.offset = min(offset, Int64(status.st_size))
        }
    }

    deinit { if case .file(_, let number) = kind { _ = Glibc.close(number) } }

    /// Forgets what it has; false where it was handed over already.
    func restart() -> Bool {
        if case .pieces = kind, offset > 0 { return false }
        offset = 0
        return true
    }

    /// Takes the next bytes.
    func take(_ bytes: UnsafeRawBufferPointer) throws(ContentFault) {
        switch kind {
        case .pieces(let take):
            do { try take(Array(bytes)) } catch {
                throw ContentFault(kind: .unreadable, reason: "what came was not taken: \(error)")
            }
        case .file(let path, let number):
            var rest = bytes
            while !rest.isEmpty {
                let place = off_t(offset) + bytes.count - rest.count
                let count = pwrite(number, rest.baseAddress, rest.count, place)
                if count < 0, errno == EINTR { continue }
                guard count > 0 else { throw Self.fault("pwrite", path + ".part") }
                rest = .init(rebasing: rest[count...])
            }
        }
        running?.update(bytes)
        offset += Int64(bytes.count)
    }

    /// Says before the first byte what all of them are compared with.
    func willCompare(with digest: DownloadDigest) {
        if case .pieces = kind, offset == 0 { running = digest.running() }
    }

    /// Whether everything that was taken is what the digest says; nil where `isStopped` said so first.
    func isRight(
        _ digest: DownloadDigest,
        isStopped: () -> Bool
    ) throws(ContentFault) -> Bool? {
        guard case .file(let path, let number) = kind else {
            return running.map { digest.isRight($0) } ?? false
        }
        let computed = digest.running()
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 20, alignment: 16)
        defer { buffer.deallocate() }
        var position: Int64 = 0
        while position < offset {
            if isStopped() { return nil }
            let count = pread(
                number,
                buffer.baseAddress,
                Int(min(Int64(buffer.count), offset - position)),
                off_t(position)
            )
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw Self.fault("pread", path + ".part") }
            computed.update(.init(rebasing: buffer[..<count]))
            position += Int64(count)
        }
        return digest.isRight(computed)
    }

    /// Removes what it has of a file.
    func discard() {
        if case .file(let path, _) = kind { _ = unlink(path + ".part") }
    }

    /// Makes what it has durable.
    func sync() throws(ContentFault) {
        guard case .file(let path, let number) = kind else { return }
        guard fdatasync(number) == 0 else { throw Self.fault("fdatasync", path + ".part") }
    }

    /// Gives a whole file its name.
    func finish() throws(ContentFault) {
        guard case .file(let path, let number) = kind else { return }
        guard ftruncate(number, off_t(offset)) == 0 else { throw Self.fault("ftruncate", path) }
        guard fsync(number) == 0 else { throw Self.fault("fsync", path + ".part") }
        guard rename(path + ".part", path) == 0 else { throw Self.fault("rename", path + ".part") }
    }

    private static func fault(_ call: String, _ subject: String) -> ContentFault {
        let error = SystemError(call, on: subject)
        let remedy = error.isFull ? error.roomRemedy : "look at the directory and its disk"
        return ContentFault(kind: .unreadable, reason: "\(error); \(remedy)")
    }
}
