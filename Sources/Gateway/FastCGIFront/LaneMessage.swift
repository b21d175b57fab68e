// What the gateway and nginx's module say to each other about content that nginx writes into a file by itself:
// records of FastCGI's type FCGI_DATA, 24 bytes each, numbers in the order of the network. The README of the
// module has the table.
//
// Pure. Invariant: what is not exactly such a message is none.

import SpoolgateExchange

/// What nginx says.
enum LaneMessage: Equatable {
    /// It can write the content, and holds it until it is answered.
    case offer
    /// So much of it is written, and how.
    case report(LaneReport)

    /// Bytes of a message.
    static let size = 24
    private static let version: UInt8 = 1

    /// Reads a record's content; nil where it says nothing that nginx may say.
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

    /// What the gateway says.
    enum Answer: Equatable {
        /// With a descriptor: content goes to the file's end, where `offset` is now, up to `limit` bytes.
        case grant(offset: Int64, LaneLimit)
        /// All content is to come as ever.
        case decline
        /// A higher limit.
        case window(LaneLimit)
        /// Nothing more may be written.
        case stop

        /// The record's content.
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
