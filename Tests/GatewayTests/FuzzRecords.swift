// Records that no daemon writes: extreme numbers with a valid checksum, invalid bytes, wrong file sizes, and records
// moved to `corrupt/` and back.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol

@testable import SpoolgateSpool

struct FuzzRecords {
    var random: SplitMix
    let spool: String
    let writer: String

    func size(of id: UploadID) -> Int64 {
        let attributes = try? FileManager.default.attributesOfItem(atPath: data(of: id))
        return (attributes?[.size] as? NSNumber)?.int64Value ?? 0
    }

    mutating func damage(_ id: UploadID) {
        let places = [record(of: id), "\(spool)/corrupt/\(id)"]
        guard let record = places.first(where: { FileManager.default.fileExists(atPath: $0) })
        else {
            return
        }
        for _ in 0..<random.next() % 3 {
            switch random.next() % 6 {
            case 0, 1: writeSlots(record, id, size: size(of: id))
            case 2: flip(record)
            case 3: truncate(data(of: id), Int(random.one(of: 0, 1, 4, 5, 11, 30)))
            case 4: rewriteCreation(record, id)
            default: break
            }
        }
        if random.once(in: 40) { unlink(data(of: id)) }
        if random.once(in: 40) { truncate(record, Int(random.next() % 10_400)) }
        if random.once(in: 20) { age(record) }
        if random.once(in: 4) {
            let time = random.one(of: WallTime(seconds: 0), .now, WallTime(seconds: 9_999_999_998))
            let name = "\(spool)/queue/\(QueueName(time, id).text)"
            _ = FileManager.default.createFile(atPath: name, contents: nil)
        }
        if random.once(in: 4) { rename(record, random.one(from: places)) }
    }

    private func record(of id: UploadID) -> String {
        "\(spool)/uploads/\(id.description.prefix(1))/\(id)"
    }

    private func data(of id: UploadID) -> String { record(of: id) + ".data" }

    // MARK: Slots

    private mutating func number(near size: Int64) -> Int64 {
        random.one(from: [
            size, size, size + 1, max(0, size - 1), 0, 1, 999_999_999_999_999, .max, .max - 1,
            WallTime.now.seconds,
        ])
    }

    private mutating func maybe(near size: Int64) -> Int64? {
        random.once(in: 2) ? nil : number(near: size)
    }

    private mutating func extent(_ size: Int64) -> Range<Int64>? {
        guard random.once(in: 3) else { return nil }
        let start = number(near: size)
        let count = number(near: random.one(of: 21, 64, 512))
        let (end, overflow) = start.addingReportingOverflow(count)
        return overflow ? nil : start..<end
    }

    private mutating func state(near size: Int64, of id: UploadID) -> RecordState {
        var state = RecordState(length: maybe(near: size))
        state.queue = random.one(from: Queue.allCases)
        state.writer = random.one(of: writer, writer, "another")
        state.then = random.one(of: nil, .deferred, .hold)
        state.until = maybe(near: size).map { WallTime(seconds: $0) }
        state.sequence = random.one(of: 0, 1, 2, 7, .max, .max - 1, UInt64(Int64.max))
        state.durable = maybe(near: size)
        state.attempts = random.one(of: 0, 1, 3, 63, 64, 65, .max)
        state.reason = random.one(of: nil, "because", "\u{202E}\u{1B}[2J")
        state.response = extent(size)
        if state.response == nil, random.once(in: 4) {
            state.status = random.one(of: 0, 99, 100, 104, 200, 204, 304, 500, 999)
        }
        state.completion = extent(size)
        state.whole = maybe(near: size).map { WallTime(seconds: $0) }
        state.next = maybe(near: size).map { WallTime(seconds: $0) }
        state.cause = random.one(of: nil, nil, .indeterminate, .failed, .held)
        state.verified = random.once(in: 4) ? number(near: size) : nil
        if random.once(in: 4) {
            let another = UploadID(high: random.next(), low: random.next())
            state.final = random.once(in: 2) ? id : another
        }
        return state
    }

    /// Writes one or both slots, each at its own or the other's position.
    private mutating func writeSlots(_ path: String, _ id: UploadID, size: Int64) {
        let isPromised = random.once(in: 2)
        for _ in 0..<1 + random.next() % 2 {
            var state = state(near: size, of: id)
            let slot = state.slot(for: id)
            if random.once(in: 8) { state.sequence ^= 1 }
            write(slot, to: path, at: Int(state.position(isPromised: isPromised)))
        }
    }

    // MARK: Bytes

    private mutating func flip(_ path: String) {
        guard var bytes = FileManager.default.contents(atPath: path), !bytes.isEmpty else { return }
        for _ in 0..<1 + random.next() % 4 {
            bytes[Int(random.next() % UInt64(bytes.count))] = UInt8(
                truncatingIfNeeded: random.next()
            )
        }
        write(Array(bytes), to: path, at: 0)
    }

    /// Replaces the creation after the slots by another one with a valid checksum.
    private mutating func rewriteCreation(_ path: String, _ id: UploadID) {
        guard let bytes = FileManager.default.contents(atPath: path), bytes.count > RecordSlots.end
        else {
            return
        }
        var fields = HTTPFields()
        for name in [
            "host", "content-type", "want-repr-digest", "upload-metadata", "x", "tus-resumable",
            "upload-concat",
        ] {
            guard random.once(in: 3), let name = HTTPField.Name(name) else { continue }
            let value = random.one(
                from: ["", "a", "sha-256=1", "\"", "1.0.0", "partial", "final;/files/x", "final;"]
            )
            fields.append(HTTPField(name: name, value: value))
        }
        var creation = UploadCreation(
            id: id,
            route: random.one(of: "default", "default", "gone"),
            owner: random.one(of: nil, nil, "alice"),
            head: RequestHead(
                // Not HEAD, which is never a creation: its response has a length and no content.
                method: random.one(of: .post, .put, .patch, .connect, .options),
                target: random.one(of: "/files", "", "*", "?", "//", "/a?b=\u{7F}"),
                fields: fields,
                contentLength: random.one(of: .unknown, .known(0), .known(.max))
            ),
            remoteAddress: random.one(of: nil, "", "::1"),
            created: WallTime(seconds: random.one(of: 0, .max, .min, WallTime.now.seconds))
        )
        creation.authorizedOwner = random.one(of: nil, "")
        creation.maxSize = random.one(of: nil, 1, .max)
        creation.resourcePath = random.one(of: "/files/upload-resource/\(id)", "", "\u{0}")
        creation.scheme = random.one(of: nil, "https")
        creation.isRepeatable = random.once(in: 2)
        truncate(path, Int(RecordSlots.end))
        write(creation.recordText, to: path, at: Int(RecordSlots.end))
    }

    private func write(_ bytes: [UInt8], to path: String, at position: Int) {
        guard let file = FileHandle(forUpdatingAtPath: path) else { return }
        defer { try? file.close() }
        try? file.seek(toOffset: UInt64(position))
        try? file.write(contentsOf: Data(bytes))
    }

    /// Sets a file's time to the distant past or future.
    private mutating func age(_ path: String) {
        let seconds: TimeInterval = random.one(of: 0, -2_000_000_000, 15_000_000_000)
        try? FileManager.default.setAttributes(
            [.modificationDate: Date(timeIntervalSince1970: seconds)],
            ofItemAtPath: path
        )
    }
}
