// Random records, cut anywhere, through the real reader on a real socket, compared with a simple model.
//
// `make test` runs a sample; `make fuzz` runs new seeds. SPOOLGATE_FUZZ_SEED=n repeats one seed.

import Foundation
import SpoolgateExchange
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@testable import SpoolgateFastCGIFront

@Suite("Random records", .serialized)
struct RecordFuzzTests {
    private static let environment = ProcessInfo.processInfo.environment
    private static var seeds: [UInt64] {
        environment["SPOOLGATE_FUZZ_SEED"].flatMap { UInt64($0) }.map { [$0] } ?? Array(0..<8)
    }

    @Test("the content read is the content in the records", arguments: seeds)
    func records(seed: UInt64) throws {
        for count in 0..<60 { try play(DrawnRecords(seed: seed << 32 | UInt64(count))) }
    }

    @Test(
        "another hour as well",
        .enabled(if: environment["SPOOLGATE_FUZZ_MINUTES"] != nil)
    )
    func hour() throws {
        let minutes = Self.environment["SPOOLGATE_FUZZ_MINUTES"].flatMap { Int64($0) } ?? 1
        let deadline = Deadline.after(.seconds(60 * minutes))
        var seed = UInt64(WallTime.now.seconds) << 20
        while !deadline.hasPassed {
            try play(DrawnRecords(seed: seed))
            seed += 1
        }
    }

    private func play(_ drawn: DrawnRecords) throws {
        var ends: [Int32] = [-1, -1]
        try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
        let connection = Connection(Descriptor(owning: ends[0]))
        connection.setReceiveTimeout(.seconds(30))
        let peer = RecordPeer(ends[1], sends: drawn.bytes, in: drawn.cuts)
        try SpoolgatePosix.Thread.start(name: "records") { peer.run() }
        let found = read(connection, rooms: drawn.rooms)
        connection.close()
        #expect(found == drawn.expected, "seed \(drawn.seed)")
        #expect(peer.responses() == drawn.responses, "seed \(drawn.seed)")
    }

    private func read(_ connection: Connection, rooms: [Int]) -> ReadRequest? {
        var reader = RecordReader(connection)
        guard let beginning = reader.receiveBeginning() else { return nil }
        var found = ReadRequest(
            id: beginning.id,
            role: beginning.role,
            parameters: beginning.parameters,
            content: [],
            isProper: false
        )
        var rooms = rooms[...]
        while true {
            var room = [UInt8](repeating: 0, count: rooms.popFirst() ?? 4096)
            let (count, end) = room.withUnsafeMutableBytes { reader.receive(into: $0, waits: true) }
            found.content += room.prefix(count)
            switch end {
            case .none: continue
            case .proper: found.isProper = true
            case .broken: break
            case .stalled: Issue.record("no byte arrived for 30 seconds")
            }
            return found
        }
    }
}

private struct ReadRequest: Equatable {
    var id: UInt16
    var role: UInt16
    var parameters: [UInt8]?
    var content: [UInt8]
    var isProper: Bool
}

private final class RecordPeer: Sendable {
    private let number: Int32
    private let bytes: [UInt8]
    private let cuts: [Int]
    private let received = Monitor<[UInt8]?>(nil)

    init(_ number: Int32, sends bytes: [UInt8], in cuts: [Int]) {
        (self.number, self.bytes, self.cuts) = (number, bytes, cuts)
    }

    /// Sends each part after the previous one was read.
    func run() {
        var rest = bytes[...]
        var cuts = cuts[...]
        while !rest.isEmpty {
            let part = Array(rest.prefix(cuts.popFirst() ?? rest.count))
            rest = rest.dropFirst(part.count)
            guard send(number, part, part.count, Int32(MSG_NOSIGNAL)) == part.count else { break }
            waitUntilRead()
        }
        shutdown(number, Int32(SHUT_WR))
        var responses: [UInt8] = []
        var room = [UInt8](repeating: 0, count: 4096)
        while case let count = recv(number, &room, room.count, 0), count > 0 {
            responses += room.prefix(count)
        }
        close(number)
        received.update { $0 = responses }
    }

    private func waitUntilRead() {
        let deadline = Deadline.after(.seconds(30))
        var unread: Int32 = 1
        while unread > 0, !deadline.hasPassed {
            guard ioctl(number, UInt(TIOCOUTQ), &unread) == 0 else { return }
            var entry = pollfd(fd: number, events: 0, revents: 0)
            guard unread > 0, poll(&entry, 1, 0) == 0 else { return }
            sched_yield()
        }
    }

    func responses() -> [UInt8]? { received.wait(until: .after(.seconds(60))) { $0 } }
}

private struct DrawnRecords {
    let seed: UInt64
    private(set) var bytes: [UInt8] = []
    /// nil if the records contain no request.
    private(set) var expected: ReadRequest?
    private(set) var responses: [UInt8] = []
    private(set) var cuts: [Int] = []
    private(set) var rooms: [Int] = []
    private var random: SplitMix
    private let id: UInt16

    init(seed: UInt64) {
        self.seed = seed
        random = SplitMix(seed: seed)
        id = random.one(of: 1, 1, 1, 2, 255, 256, 65_535)
        draw()
        let maximum = random.one(of: 1, 7, 9, 300, 5_000, 100_000) as UInt64
        // Single bytes only for small requests: at most a few hundred parts.
        let least = bytes.count / 400
        var left = bytes.count
        while left > 0 {
            cuts.append(min(left, least + 1 + Int(random.next() % maximum)))
            left -= cuts[cuts.count - 1]
        }
        let room = random.one(of: 1, 3, 900, 40_000, 300_000) as UInt64
        rooms = (0..<500).map { _ in 1 + Int(random.next() % room) }
    }

    private mutating func draw() {
        while random.once(in: 4) { addManagement() }
        if random.once(in: 12) { return addFault(hasBegun: false) }
        let role: UInt16 = random.one(of: 1, 1, 2, 900)
        add(.beginRequest, [UInt8(role >> 8), UInt8(role & 255), 1, 0, 0, 0, 0, 0])
        guard let parameters = addStream(.params) else { return }
        let kept = parameters.count > RequestBeginning.maximumBytes ? nil : parameters
        expected = ReadRequest(id: id, role: role, parameters: kept, content: [], isProper: true)
        if let content = addStream(.stdin) {
            expected?.content = content
            if random.once(in: 3) { bytes += drawBytes(40) }
        } else {
            expected?.content = broken
            expected?.isProper = false
        }
    }

    private var broken: [UInt8] = []

    /// Adds a stream with unrelated records in between; returns nil if a fault ends it early.
    private mutating func addStream(_ type: RecordType) -> [UInt8]? {
        var content: [UInt8] = []
        let isLarge = random.once(in: 20)
        for _ in 0..<random.next() % (isLarge ? 6 : 9) {
            while random.once(in: 5) { addStranger() }
            let part = drawBytes(random.one(of: 1, 20, 700, 3_000, isLarge ? 65_535 : 9))
            guard !part.isEmpty else { continue }
            if random.once(in: 60) {
                let record = Record.bytes(type, part, id: id)
                let cut = Int(random.next() % UInt64(record.count))
                bytes += record.prefix(cut)
                broken = content + part.prefix(max(0, cut - 8))
                return nil
            }
            add(type, part)
            content += part
            if random.once(in: 60) {
                broken = content
                addFault(hasBegun: true)
                return nil
            }
        }
        while random.once(in: 5) { addStranger() }
        add(type, [])
        return content
    }

    private mutating func add(_ type: RecordType, _ content: [UInt8]) {
        bytes += Record.bytes(type, content, padding: random.one(of: 0, 0, 0, 1, 7, 255), id: id)
    }

    /// A record that is ignored or gets a response of its own.
    private mutating func addStranger() {
        let other = id == 7 ? 8 : 7 as UInt16
        switch random.next() % 4 {
        case 0: addManagement()
        case 1:
            let number = random.one(of: other, id) as UInt16
            bytes += Record.bytes(.beginRequest, [0, 1, 0, 0, 0, 0, 0, 0], id: number)
            responses += Record.bytes(.endRequest, [0, 0, 0, 0, 1, 0, 0, 0], id: number)
        default:
            let type: RecordType = random.one(of: .params, .stdin, .abortRequest, .stdout)
            let padding: UInt8 = random.one(of: 0, 3, 255)
            bytes += Record.bytes(type, drawBytes(500), padding: padding, id: other)
        }
    }

    private mutating func addManagement() {
        let padding: UInt8 = random.one(of: 0, 5)
        if random.once(in: 2) {
            let names = ["FCGI_MAX_CONNS", "FCGI_MPXS_CONNS", "X"]
            let asked = names.filter { _ in random.once(in: 2) }
            let pairs = Record.pairs(asked.map { ($0, "") })
            bytes += Record.bytes(.getValues, pairs, padding: padding, id: 0)
            let known = asked.contains("FCGI_MPXS_CONNS") ? [("FCGI_MPXS_CONNS", "0")] : []
            responses += Record.bytes(.getValuesResult, Record.pairs(known), id: 0)
        } else {
            bytes += Record.bytes(.stdout, drawBytes(90), padding: padding, id: 0)
            let unknown: [UInt8] = [1, 11, 0, 0, 0, 8, 0, 0]
            responses += unknown + [RecordType.stdout.rawValue, 0, 0, 0, 0, 0, 0, 0]
        }
    }

    private mutating func addFault(hasBegun: Bool) {
        switch random.next() % 4 {
        case 0: bytes += [UInt8(2 + random.next() % 200)] + [UInt8](repeating: 1, count: 30)
        case 1: bytes += Record.bytes(.getValues, [5, 1], id: 0)
        case 2: bytes += Record.bytes(.beginRequest, [0, 1, 0], id: 3)
        default:
            guard hasBegun else { return bytes += Record.bytes(.stdin, [1], id: 9) }
            bytes += Record.bytes(.abortRequest, drawBytes(8), id: id)
        }
    }

    private mutating func drawBytes(_ maximum: UInt64) -> [UInt8] {
        (0..<random.next() % (maximum + 1)).map { _ in UInt8(truncatingIfNeeded: random.next()) }
    }
}
