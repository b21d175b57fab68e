// The locked file that a download writes before it gets its final name.
//
// The invariant: while an instance exists, no other download in any process writes to the file, by any path.

import Glibc
import SpoolgateCrypto
import SpoolgatePosix
import SpoolgateTextFormats

/// The locked file `PATH.part`; used by one thread.
final class PartFile {
    private let path: String
    private let part: String
    private let file: Descriptor
    private var number: Int32 { file.number }

    private static let tailLength: Int64 = 64 << 10

    /// Opens the file, creating it if it is missing, and locks it.
    ///
    /// - Throws: a fault of kind `.later` if another download holds the lock.
    init(of path: String) throws(ContentFault) {
        self.path = path
        part = path + ".part"
        while true {
            // Without O_NONBLOCK, open(2) would block on a FIFO with this name.
            let flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY
            let number = open(part, flags, 0o666)
            guard number >= 0 else { throw .of("open", part) }
            let opened = Descriptor(owning: number)
            guard try Self.isLocked(opened, part) else {
                throw ContentFault(
                    kind: .later,
                    reason: "another download is writing to \(part); wait until it ends, or use "
                        + "another file"
                )
            }
            // Another download may have renamed or removed the file before this lock was acquired.
            guard FileIdentity(of: part) == FileIdentity(of: number) else { continue }
            file = opened
            return
        }
    }

    /// Tries to lock the file; returns false if another open file description holds the lock.
    private static func isLocked(
        _ file: borrowing Descriptor,
        _ path: String
    ) throws(ContentFault) -> Bool {
        do throws(SystemError) {
            guard try file.status(subject: path).isRegular else {
                throw SystemError(call: "open", subject: path, errno: SystemError.notRegular)
            }
            return try file.tryLock(subject: path)
        } catch {
            throw .of(error)
        }
    }

    func size() throws(ContentFault) -> Int64 {
        do throws(SystemError) { return try file.status(subject: part).size } catch {
            throw .of(error)
        }
    }

    /// Writes `bytes` at `offset`, after truncating the file if `offset` is 0.
    func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(ContentFault) {
        // The content may be from another download.
        if offset == 0, ftruncate(number, 0) != 0 { throw .of("ftruncate", part) }
        var rest = bytes
        while !rest.isEmpty {
            let place = off_t(offset) + bytes.count - rest.count
            let count = pwrite(number, rest.baseAddress, rest.count, place)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw .of("pwrite", part) }
            rest = .init(rebasing: rest[count...])
        }
    }

    /// Passes the bytes from `start` up to `end` to `body`, piece by piece; stops and returns false if `body` returns
    /// false.
    func read(
        from start: Int64,
        to end: Int64,
        _ body: (UnsafeRawBufferPointer) -> Bool
    ) throws(ContentFault) -> Bool {
        let size = Int(min(1 << 20, max(end - start, 1)))
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 16)
        defer { buffer.deallocate() }
        var position = start
        while position < end {
            let wanted = Int(min(Int64(buffer.count), end - position))
            let count = pread(number, buffer.baseAddress, wanted, off_t(position))
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw .of("pread", part) }
            guard body(.init(rebasing: buffer[..<count])) else { return false }
            position += Int64(count)
        }
        return true
    }

    /// Returns a digest of the last bytes before `offset`, which must exist.
    func tail(before offset: Int64) throws(ContentFault) -> String {
        let digest = RunningDigest(.sha256)
        _ = try read(from: max(0, offset - Self.tailLength), to: offset) { bytes in
            digest.update(bytes)
            return true
        }
        return Hexadecimal.text(Array(digest.finish().prefix(8)))
    }

    func sync() throws(ContentFault) {
        guard fdatasync(number) == 0 else { throw .of("fdatasync", part) }
    }

    /// Truncates the file to `length` bytes, makes it durable and gives it its final name.
    func finish(_ length: Int64) throws(ContentFault) {
        guard ftruncate(number, off_t(length)) == 0 else { throw .of("ftruncate", part) }
        guard fsync(number) == 0 else { throw .of("fsync", part) }
        guard rename(part, path) == 0 else { throw .of("rename", part) }
    }

    func discard() { _ = unlink(part) }
}

extension Download {
    /// Removes `PATH.part` of an incomplete download; throws `.later` if a download is writing to it.
    package static func discardPart(of path: String) throws(TransferError) {
        guard FileIdentity(of: path + ".part", followingLinks: false) != nil else { return }
        do throws(ContentFault) { try PartFile(of: path).discard() } catch {
            throw TransferError(error.kind, error.reason)
        }
    }
}

extension ContentFault {
    /// The fault for a call on a destination that has just failed, from `errno`.
    static func of(_ call: String, _ subject: @autoclosure () -> String) -> ContentFault {
        of(SystemError(call, on: subject()))
    }

    static func of(_ error: SystemError) -> ContentFault {
        let remedy = error.isFull ? error.roomRemedy : "check the directory and its disk"
        return ContentFault(kind: .unreadable, reason: "\(error); \(remedy)")
    }
}
