// The content of one request as libcurl requests it, piece by piece.
//
// Invariant: if the length is known, exactly that many bytes are returned, or an error is thrown.

import SpoolgatePosix

struct ContentLengthMismatch: Error, CustomStringConvertible {
    var description: String
}

/// Reads one request's content in order; not thread-safe.
final class ContentSource {
    /// The total number of bytes; nil if unknown until the end.
    let length: Int64?
    /// The number of bytes that `read` has returned, without those put back.
    private(set) var position: Int64 = 0
    private(set) var isAtEnd = false

    private let fill: (UnsafeMutableRawBufferPointer, Int64) throws -> Int
    let isRepeatable: Bool
    private var held: [UInt8] = []

    /// Returns nil if there is no content.
    init?(_ content: UpstreamContent) {
        switch content {
        case .none:
            return nil
        case .bytes(let bytes):
            let frame = Frame(before: bytes, middle: 0, after: [])
            (length, isRepeatable) = (frame.length, true)
            fill = { buffer, position in frame.fill(buffer, from: position) { _, _ in 0 } }
        case .held(let buffer):
            (length, isRepeatable) = (Int64(buffer.count), true)
            fill = { target, position in buffer.copy(from: Int(position), to: target) }
        case .file(_, let length, let read):
            (self.length, isRepeatable, fill) = (length, true, read)
        case .framed(let before, let middle, let read, let after):
            let frame = Frame(before: before, middle: middle, after: after)
            (length, isRepeatable) = (frame.length, true)
            fill = { buffer, position in try frame.fill(buffer, from: position, read) }
        case .stream(let length, let read):
            (self.length, isRepeatable) = (length, false)
            fill = { buffer, _ in try read(buffer) }
        }
        if length == 0 { return nil }
    }

    var canRestart: Bool { isRepeatable || (position == 0 && held.isEmpty && !isAtEnd) }

    /// Copies the next bytes to `buffer`, which must not be empty; returns 0 at the end.
    ///
    /// - Throws: the errors of the content, or `ContentLengthMismatch`.
    func read(into buffer: UnsafeMutableRawBufferPointer) throws -> Int {
        if !held.isEmpty { return takeHeld(into: buffer) }
        var room = buffer
        if let length {
            guard position < length else {
                isAtEnd = true
                return 0
            }
            room = .init(rebasing: buffer.prefix(Int(min(Int64(buffer.count), length - position))))
        }
        let count = try fill(room, position)
        guard count > 0 else {
            if let length {
                throw ContentLengthMismatch(
                    description: "the content ended after \(position) of \(length) bytes"
                )
            }
            isAtEnd = true
            return 0
        }
        position += Int64(count)
        return count
    }

    /// Reads the whole content, which must have `length` bytes.
    func all(_ length: Int64) throws -> [UInt8] {
        try [UInt8](unsafeUninitializedCapacity: Int(length)) { buffer, count in
            while count < Int(length) {
                count += try read(
                    into: .init(rebasing: UnsafeMutableRawBufferPointer(buffer)[count...])
                )
            }
        }
    }

    /// Makes the next `read` return `bytes` again.
    func putBack(_ bytes: UnsafeRawBufferPointer) {
        held = Array(bytes) + held
        position -= Int64(bytes.count)
    }

    private func takeHeld(into buffer: UnsafeMutableRawBufferPointer) -> Int {
        let count = min(buffer.count, held.count)
        held.withUnsafeBytes { buffer.copyMemory(from: .init(rebasing: $0[..<count])) }
        held.removeFirst(count)
        position += Int64(count)
        return count
    }
}

/// Content between other bytes.
///
/// Positions count from the start of `before`.
private struct Frame {
    let before: [UInt8]
    /// The size of the content in bytes.
    let middle: Int64
    let after: [UInt8]

    var length: Int64 { Int64(before.count) + middle + Int64(after.count) }

    /// Fills `buffer`, which must not extend beyond the end of `after`.
    ///
    /// Returns fewer bytes if `read` does.
    func fill(
        _ buffer: UnsafeMutableRawBufferPointer,
        from position: Int64,
        _ read: (UnsafeMutableRawBufferPointer, Int64) throws -> Int
    ) rethrows -> Int {
        var filled = 0
        while filled < buffer.count {
            let room = UnsafeMutableRawBufferPointer(rebasing: buffer[filled...])
            let inMiddle = position + Int64(filled) - Int64(before.count)
            if inMiddle < 0 {
                filled += Self.copy(before.suffix(Int(-inMiddle)), to: room)
            } else if inMiddle < middle {
                let limit = Int(min(Int64(room.count), middle - inMiddle))
                let count = try read(.init(rebasing: room[..<limit]), inMiddle)
                guard count > 0 else { break }
                filled += count
            } else {
                filled += Self.copy(after.suffix(from: Int(inMiddle - middle)), to: room)
            }
        }
        return filled
    }

    private static func copy(
        _ bytes: ArraySlice<UInt8>,
        to buffer: UnsafeMutableRawBufferPointer
    ) -> Int {
        let part = bytes.prefix(buffer.count)
        buffer.copyBytes(from: part)
        return part.count
    }
}
