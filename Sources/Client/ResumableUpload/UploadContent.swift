// The body of one upload as its engine reads it: by offset, and portion by portion.
//
// Files and bytes are there whole, and read at any offset; a stream's come from its window (StreamWindow.swift).
// The invariant: bytes at an offset are the same each time, or an error says that they are not.

import Glibc
import SpoolgatePosix

/// Why a body cannot be read on.
struct ContentFault: Error {
    var kind: TransferError.Kind
    /// Why, as a part of a sentence.
    var reason: String
}

/// What one request sends.
struct Portion: Equatable {
    /// Bytes.
    var count: Int64
    /// Whether the body ends with it.
    var isLast: Bool
}

/// A body.
///
/// Used by the thread of its upload.
protocol UploadContent: AnyObject {
    /// Bytes in all; nil while nobody knows.
    var length: Int64? { get }
    /// What it is recognised by; nil where nothing tells.
    var fingerprint: String? { get }
    /// Whether it can be read from its beginning, or from `offset`.
    func canBeRead(from offset: Int64) -> Bool
    /// Says that bytes before `offset` are not read again.
    func release(upTo offset: Int64)
    /// The next portion from `offset` on, at most `limit` bytes; waits for a stream.
    ///
    /// - Returns: nil where `isStopped` said so first.
    func portion(
        from offset: Int64,
        limit: Int64?,
        isStopped: () -> Bool
    ) throws(ContentFault) -> Portion?
    /// Fills `buffer` from `offset` on, as far as the portion goes.
    func read(
        into buffer: UnsafeMutableRawBufferPointer,
        at offset: Int64
    ) throws(ContentFault)
    /// Throws where it is another body than at the beginning.
    func check() throws(ContentFault)
    /// Ends whoever gives its bytes.
    func close()
}

extension Upload.Body {
    /// Opens it.
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
    /// What a file is recognised by now, as in a token.
    ///
    /// - Parameter path: bytes without a zero.
    /// - Returns: its size, time of change and number; nil: it cannot be looked at.
    package static func fingerprint(ofFile path: [UInt8]) -> String? {
        var status = stat()
        return path.withPath { stat($0, &status) } == 0 ? FileState(status).text : nil
    }
}

extension [UInt8] {
    /// Calls `body` with the bytes as C wants a path; -1 if it cannot be made one.
    fileprivate func withPath(_ body: (UnsafePointer<CChar>) -> Int32) -> Int32 {
        (map { CChar(bitPattern: $0) } + [0]).withUnsafeBufferPointer {
            $0.baseAddress.map(body) ?? -1
        }
    }
}

/// What a file is recognised by.
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

/// An open file.
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
        // Before the last byte leaves: after it the server may use what it has.
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

/// Bytes in memory.
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
