// The body of an upload as its run reads it: by offset, portion by portion.
//
// Files and memory can be read at any offset, streams within their window. The invariant: the bytes at an offset are
// the same each time, or an error is thrown.

import Glibc
import SpoolgatePosix

/// The error of a body that cannot be read, or a destination that cannot be written.
struct ContentFault: Error {
    var kind: TransferError.Kind
    /// The reason, as a part of a sentence.
    var reason: String
}

struct Portion: Equatable {
    var count: Int64
    /// Whether the body ends with this portion.
    var isLast: Bool
}

/// Used by the thread of its upload.
protocol UploadContent: AnyObject {
    /// The length of the body in bytes; nil while unknown.
    var length: Int64? { get }
    /// Identifies the body in a token; nil if that is impossible.
    var fingerprint: String? { get }
    func canBeRead(from offset: Int64) -> Bool
    /// Releases the bytes before `offset`, which are not read again.
    func release(upTo offset: Int64)
    /// Returns the next portion from `offset` on, at most `limit` bytes; waits for a stream.
    ///
    /// - Returns: the portion; nil if `isStopped` returned true.
    func portion(
        from offset: Int64,
        limit: Int64?,
        isStopped: () -> Bool
    ) throws(ContentFault) -> Portion?
    func read(
        into buffer: UnsafeMutableRawBufferPointer,
        at offset: Int64
    ) throws(ContentFault)
    /// Throws if the body has changed.
    func check() throws(ContentFault)
    /// Stops the source of the bytes.
    func close()
}

extension Upload.Body {
    func opened(window: Int) throws(ContentFault) -> any UploadContent {
        switch source {
        case .bytes(let bytes): return MemoryContent(bytes)
        case .stream(let feed, let length):
            return StreamContent(feed, length: length, window: window)
        case .written(let channel, let length):
            let feed = StreamFeed.asynchronous { add throws in try await channel.feed(add) }
            return StreamContent(feed, length: length, window: window)
        case .file(let bytes):
            let path = String(decoding: bytes, as: UTF8.self)
            let number = bytes.withPath { open($0, O_RDONLY | O_CLOEXEC) }
            guard number >= 0 else {
                throw ContentFault(
                    kind: .unreadable,
                    reason: "\(SystemError("open", on: path)); check the file and its permissions"
                )
            }
            let descriptor = Descriptor(owning: number)
            var status = stat()
            guard fstat(number, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
                let feed = StreamFeed.descriptor(descriptor.release(), isOwned: true)
                return StreamContent(feed, length: nil, window: window)
            }
            return FileContent(descriptor, path: path, state: FileState(status))
        }
    }
}

extension Upload {
    /// Returns a file's size, modification time and inode number, as in a token; nil if they cannot be read.
    ///
    /// `path` must not contain a zero byte.
    package static func fingerprint(ofFile path: [UInt8]) -> String? {
        var status = stat()
        return path.withPath { stat($0, &status) } == 0 ? FileState(status).text : nil
    }
}

extension [UInt8] {
    /// Passes the bytes to `body` as a C string; returns -1 if that is impossible.
    fileprivate func withPath(_ body: (UnsafePointer<CChar>) -> Int32) -> Int32 {
        (map { CChar(bitPattern: $0) } + [0]).withUnsafeBufferPointer {
            $0.baseAddress.map(body) ?? -1
        }
    }
}

private struct FileState: Equatable {
    let size: Int64
    private let seconds: Int
    private let nanoseconds: Int
    private let node: UInt64

    init(_ status: stat) {
        size = Int64(status.st_size)
        (seconds, nanoseconds) = (status.st_mtim.tv_sec, status.st_mtim.tv_nsec)
        node = UInt64(status.st_ino)
    }

    var text: String { "\(size)-\(seconds).\(nanoseconds)-\(node)" }
}

private final class FileContent: UploadContent {
    let length: Int64?
    let fingerprint: String?
    private let descriptor: Descriptor
    private let path: String
    private let state: FileState
    private var size: Int64 { state.size }

    init(_ descriptor: consuming Descriptor, path: String, state: FileState) {
        self.descriptor = descriptor
        self.path = path
        self.state = state
        length = state.size
        fingerprint = state.text
    }

    func canBeRead(from offset: Int64) -> Bool { offset <= size }

    func release(upTo offset: Int64) {}

    func portion(
        from offset: Int64,
        limit: Int64?,
        isStopped: () -> Bool
    ) throws(ContentFault) -> Portion? {
        try check()
        let count = min(size - offset, limit ?? .max)
        return Portion(count: count, isLast: offset + count == size)
    }

    func read(
        into buffer: UnsafeMutableRawBufferPointer,
        at offset: Int64
    ) throws(ContentFault) {
        let count: Int
        do throws(SystemError) {
            count = try descriptor.read(into: buffer, at: offset, subject: path)
        } catch {
            throw ContentFault(kind: .unreadable, reason: "\(error); check the file's disk")
        }
        guard count == buffer.count else { throw changed }
        // After the last byte, the server may use the content.
        if offset + Int64(count) == size { try check() }
    }

    func check() throws(ContentFault) {
        var status = stat()
        guard fstat(descriptor.number, &status) == 0, FileState(status) == state else {
            throw changed
        }
    }

    func close() {}

    private var changed: ContentFault {
        ContentFault(
            kind: .changed,
            reason: "\(path) changed while it was sent; start again when no process writes to it"
        )
    }
}

private final class MemoryContent: UploadContent {
    var length: Int64? { Int64(bytes.count) }
    let fingerprint: String? = nil
    private let bytes: [UInt8]

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    func canBeRead(from offset: Int64) -> Bool { offset <= Int64(bytes.count) }

    func release(upTo offset: Int64) {}

    func portion(from offset: Int64, limit: Int64?, isStopped: () -> Bool) -> Portion? {
        let count = min(Int64(bytes.count) - offset, limit ?? .max)
        return Portion(count: count, isLast: offset + count == Int64(bytes.count))
    }

    func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) {
        bytes.withUnsafeBytes { bytes in
            buffer.copyMemory(from: .init(rebasing: bytes[Int(offset)...].prefix(buffer.count)))
        }
    }

    func check() {}

    func close() {}
}
