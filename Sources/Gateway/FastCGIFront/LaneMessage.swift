// The messages between the gateway and nginx's module on the lane.
//
// They are records of type FCGI_DATA, 24 bytes each, in network byte order; the module's README has the table. Pure.
// Invariant: bytes that deviate from this format are not a message.

import SpoolgateExchange

/// A message from nginx.
enum LaneMessage: Equatable {
    /// nginx can write the content, and holds it until the gateway replies.
    case offer
    case report(LaneReport)

    static let size = 24
    private static let version: UInt8 = 1

    /// Parses a record's content.
    init?(_ bytes: [UInt8]) {
        guard bytes.count == Self.size, bytes[1] == Self.version, bytes[2] == 0, bytes[3] == 0,
            Self.number(bytes[16..<24]) == 0
        else { return nil }
        let (errno, count) = (Self.number(bytes[4..<8]), Self.number(bytes[8..<16]))
        guard let count = Int64(exactly: count), let errno = Int32(exactly: errno) else {
            return nil
        }
        switch bytes[0] {
        case 1 where count == 0 && errno == 0: self = .offer
        case 2 where errno == 0: self = .report(.written(count))
        case 3: self = .report(.ended(count, errno: errno))
        default: return nil
        }
    }

    private static func number(_ bytes: ArraySlice<UInt8>) -> UInt64 {
        bytes.reduce(0) { $0 << 8 | UInt64($1) }
    }

    /// A message from the gateway.
    enum Answer: Equatable {
        /// Sent with a file's descriptor. nginx appends content to the file, whose size is `offset`, up to `limit`.
        case grant(offset: Int64, LaneLimit)
        /// nginx must send all content as usual.
        case decline
        /// nginx may write up to this higher limit.
        case window(LaneLimit)
        /// nginx must write no more.
        case stop

        var bytes: [UInt8] {
            switch self {
            case .grant(let offset, let limit): Self.bytes(1, offset: offset, limit)
            case .decline: Self.bytes(2)
            case .window(let limit): Self.bytes(3, limit)
            case .stop: Self.bytes(4)
            }
        }

        private static func bytes(
            _ kind: UInt8,
            offset: Int64 = 0,
            _ limit: LaneLimit = LaneLimit(count: 0, restFollows: false)
        ) -> [UInt8] {
            var bytes: [UInt8] = [
                kind, LaneMessage.version, limit.restFollows ? 1 : 0, 0, 0, 0, 0, 0,
            ]
            for number in [offset, limit.count] {
                withUnsafeBytes(of: number.bigEndian) { bytes.append(contentsOf: $0) }
            }
            return bytes
        }
    }
}
