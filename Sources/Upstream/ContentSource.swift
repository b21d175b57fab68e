// The content of one request as libcurl asks for it: piece by piece, and again from the start when
// a kept connection turned out closed.
//
// It holds no content of its own but the piece that is handed back when a response arrives before
// the piece could be sent. The invariant: with a known length exactly that many bytes come out, or
// an error.

/// Content that did not have the length it was announced with.
struct ContentLengthMismatch: Error, CustomStringConvertible {
    var description: String
}

/// Reads one request's content in order.
///
/// One thread.
final class ContentSource {
    /// Bytes in all; nil: unknown until the end.
    let length: Int64?
    /// Bytes that came out, those put back not counted.
    private(set) var position: Int64 = 0
    /// Whether the end has been told.
    private(set) var isAtEnd = false

    private let fill: (UnsafeMutableRawBufferPointer, Int64) throws -> Int
    private let isRepeatable: Bool
    private var held: [UInt8] = []

    /// The source for `content`; nil where there is none to send.
    init?(_ content: UpstreamContent) {
        switch content {
        case .none:
            return nil
        case .bytes(let bytes):
            guard !bytes.isEmpty else { return nil }
            length = Int64(bytes.count)
            isRepeatable = true
            fill = { buffer, position in
                let count = min(buffer.count, bytes.count - Int(position))
                bytes.withUnsafeBytes { source in
                    buffer.copyMemory(
                        from: .init(rebasing: source[Int(position)..<Int(position) + count])
                    )
                }
                return count
            }
        case .file(_, let length, let read):
            guard length > 0 else { return nil }
            self.length = length
            isRepeatable = true
            fill = read
        case .stream(let length, let read):
            guard length != 0 else { return nil }
            self.length = length
            isRepeatable = false
            fill = { buffer, _ in try read(buffer) }
        }
    }

    /// Whether it can (still) be read from its start.
    var canRestart: Bool { isRepeatable || (position == 0 && held.isEmpty && !isAtEnd) }

    /// Adds the next bytes to `buffer`, which is not empty; 0 at the end.
    ///
    /// - Throws: what the content throws, or `ContentLengthMismatch`.
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

    /// Takes back the bytes of the last `read`; the next one gives them again.
    func putBack(_ bytes: UnsafeRawBufferPointer) {
        held = Array(bytes) + held
        position -= Int64(bytes.count)
    }

    /// Goes back to the start; false if that cannot be.
    func restart() -> Bool {
        guard canRestart else { return false }
        held = []
        position = 0
        isAtEnd = false
        return true
    }

    private func takeHeld(into buffer: UnsafeMutableRawBufferPointer) -> Int {
        let count = min(buffer.count, held.count)
        held.withUnsafeBytes { buffer.copyMemory(from: .init(rebasing: $0[..<count])) }
        held.removeFirst(count)
        position += Int64(count)
        return count
    }
}
