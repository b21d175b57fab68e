// The contents that a probe sends. Each behaves in one way that the response, or its absence, reveals.
//
// None completes an upload: the request's fields say that more content follows.

import HTTPTypes
import SpoolgateCurl
import SpoolgateUploadProtocol

enum ProbeContent {
    /// Creates `size` bytes, sent as fast as possible; calls `begun` before the first.
    static func plain(_ size: Int64, begun: @escaping () -> Void = {}) -> ClientContent {
        ClientContent(length: size) { buffer, transfer in
            if transfer.sent == 0 { begun() }
            return .bytes(fill(buffer, upTo: size - transfer.sent))
        }
    }

    /// Creates `size` bytes, sent when a 104 is received or `time` has passed.
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

    /// Announces `length` bytes but resets the connection instead of sending them; calls `asked` just before.
    static func none(of length: Int64, asked: @escaping () -> Void) -> ClientContent {
        ClientContent(length: length) { _, _ in
            asked()
            return .reset
        }
    }

    /// Announces twice `size` bytes and sends `size`, evenly over `time` or, if that is zero, at once.
    ///
    /// When these bytes have left the machine and `settling` has passed, calls `end` until it or the server ends the
    /// transfer.
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
            // A buffer may be smaller than a piece; the rest of the piece then follows at once.
            let room = size / pieces - transfer.sent % (size / pieces)
            let count = fill(buffer, upTo: min(room, size - transfer.sent))
            if Int64(count) == room { next = .now + time / Int(pieces) }
            return .bytes(count)
        }
    }

    /// Fills a buffer with bytes that do not compress.
    private static func fill(_ buffer: UnsafeMutableRawBufferPointer, upTo most: Int64) -> Int {
        let count = Int(min(Int64(buffer.count), most))
        var state: UInt64 = 0x9e37_79b9_7f4a_7c15
        for index in 0..<count {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            buffer[index] = UInt8(truncatingIfNeeded: state >> 56)
        }
        return count
    }
}
