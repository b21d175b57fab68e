// The kinds of content that a probe sends.
//
// Such content never completes an upload, because the request's fields say that more content follows.

import HTTPTypes
import SpoolgateCurl
import SpoolgateUploadProtocol

enum ProbeContent {
    /// Creates `size` bytes of content, sent as fast as possible.
    ///
    /// Calls `begun` before the first byte.
    static func plain(_ size: Int64, begun: @escaping () -> Void = {}) -> ClientContent {
        ClientContent(length: size) { buffer, transfer in
            if transfer.sent == 0 { begun() }
            return .bytes(fill(buffer, upTo: size - transfer.sent))
        }
    }

    /// Creates `size` bytes of content, sent once a 104 is received, `time` has passed or `isStopped` returns true.
    static func held(
        _ size: Int64,
        for time: Duration,
        unless isStopped: @escaping () -> Bool
    ) -> ClientContent {
        ClientContent(length: size) { buffer, transfer in
            let hasCome = transfer.interim.contains { $0.head.status.code == 104 }
            guard hasCome || transfer.elapsed > time || isStopped() else { return .later }
            return .bytes(fill(buffer, upTo: size - transfer.sent))
        }
    }

    /// Creates content that calls `requested` and resets the connection when the first of `length` bytes is due.
    static func none(of length: Int64, requested: @escaping () -> Void) -> ClientContent {
        ClientContent(length: length) { _, _ in
            requested()
            return .reset
        }
    }

    /// Creates content that announces twice `size` bytes and sends only `size`, evenly over `time`.
    ///
    /// After the bytes have left this machine and `settling` has passed, `end` is called repeatedly until `end` or
    /// the server ends the transfer.
    static func broken(
        after size: Int64,
        over time: Duration = .zero,
        settling: Duration = .zero,
        end: @escaping (ClientTransfer) -> ClientContent.Step
    ) -> ClientContent {
        let pieces: Int64 = 16
        var next = ContinuousClock.now
        var left: ContinuousClock.Instant?
        return ClientContent(length: size * 2) { buffer, transfer in
            guard transfer.sent < size else {
                guard transfer.unsent <= 0 else { return .later }
                let now = ContinuousClock.now
                left = left ?? now
                return now - (left ?? now) < settling ? .later : end(transfer)
            }
            guard time > .zero else { return .bytes(fill(buffer, upTo: size - transfer.sent)) }
            guard ContinuousClock.now >= next else { return .later }
            // If the buffer is smaller than a piece, the rest of the piece follows at once.
            let room = size / pieces - transfer.sent % (size / pieces)
            let count = fill(buffer, upTo: min(room, size - transfer.sent))
            if Int64(count) == room { next = .now + time / Int(pieces) }
            return .bytes(count)
        }
    }

    /// Fills a buffer with up to `maximum` incompressible bytes, and returns their number.
    private static func fill(_ buffer: UnsafeMutableRawBufferPointer, upTo maximum: Int64) -> Int {
        let count = Int(min(Int64(buffer.count), maximum))
        var state: UInt64 = 0x9e37_79b9_7f4a_7c15
        for index in 0..<count {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            buffer[index] = UInt8(truncatingIfNeeded: state >> 56)
        }
        return count
    }
}
