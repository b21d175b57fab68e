// The contents that a probe sends: each behaves in one way that is told in an answer, or in its absence.
//
// None of them completes an upload: that is said by a field, and the fields say that more comes.

import HTTPTypes
import SpoolgateCurl
import SpoolgateUploadProtocol

/// Makes contents.
enum ProbeContent {
    /// `size` bytes, as fast as they are taken; `begun` is told the first time.
    static func plain(_ size: Int64, begun: @escaping () -> Void = {}) -> ClientContent {
        ClientContent(length: size) { buffer, transfer in
            if transfer.sent == 0 { begun() }
            return .bytes(fill(buffer, upTo: size - transfer.sent))
        }
    }

    /// `size` bytes that wait for an interim response 104, for a time at most.
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

    /// Says that `length` bytes come and, asked for them, breaks off; `asked` is told then.
    static func none(of length: Int64, asked: @escaping () -> Void) -> ClientContent {
        ClientContent(length: length) { _, _ in
            asked()
            return .reset
        }
    }

    /// Says that more comes, and sends `size` bytes: piece by piece over `time`, or at once where that is zero.
    ///
    /// When they have left this machine, and had the time of `settling` to reach the gateway, `end` is asked until
    /// it breaks off or the other side does.
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
            // A buffer may be smaller than a piece: then the rest of it goes at once.
            let room = size / pieces - transfer.sent % (size / pieces)
            let count = fill(buffer, upTo: min(room, size - transfer.sent))
            if Int64(count) == room { next = .now + time / Int(pieces) }
            return .bytes(count)
        }
    }

    /// Puts bytes into a buffer that no compression makes fewer.
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
