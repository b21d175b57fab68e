// How each state of spoolgate-spool(5) is created.
//
// Invariant: a case leaves exactly the files that its row names.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

/// Creates states by a process that crashes at their beginning, then by hand.
final class StateMaker {
    let directory: TemporarySpool
    let id = UploadID.random()
    private let disk = ScriptedDisk()
    private let spool: Spool
    private var upload: Upload?

    static let content = "ten bytes."

    init(_ directory: TemporarySpool) throws {
        self.directory = directory
        spool = try directory.open(disk.disk)
    }

    deinit { try? FileManager.default.removeItem(atPath: "\(directory.path).target") }

    typealias Make = @Sendable (StateMaker) throws -> Void

    /// Refuses further calls and releases the upload, like a crash.
    func die() {
        disk.die(after: 0)
        upload = nil
    }

    /// An upload being received, with content in a file unless it is `inMemory`.
    @discardableResult
    func incoming(
        _ content: String = content,
        promised: Bool = false,
        inMemory: Bool = false,
        repeatable: Bool = true,
        fields: HTTPFields = [:]
    ) throws -> Upload {
        let made = try spool.create(
            .sample(id, repeatable: repeatable, fields: fields),
            requestRelease: {}
        )
        upload = made
        if !content.isEmpty { try made.append(content) }
        if promised {
            try made.sync()
        } else if !inMemory, !content.isEmpty {
            try made.store()
        }
        return made
    }

    /// The same with more content after the durable part.
    @discardableResult
    func partlyPromised() throws -> Upload {
        let upload = try incoming(promised: true)
        try upload.append("more, not promised")
        return upload
    }

    func delivered(promised: Bool) throws {
        let upload = try incoming(promised: promised)
        try upload.beginAttempt()
        try upload.finish(with: .sample)
        die()
    }

    /// Crashes once the state says that the upload is in `hold`.
    func beginHold(_ upload: Upload) {
        // The name, its directory and the state.
        disk.die(after: 3)
        try? upload.hold(.failed, reason: "refused")
    }

    func restoreContent() throws {
        try Data(Self.content.utf8).write(to: URL(filePath: directory.data(id)))
    }

    func beginRemoval() throws {
        try Data().write(to: URL(filePath: directory.removal(id)))
    }

    func editRecord(_ change: (inout Data) -> Void) throws {
        die()
        try directory.edit(directory.record(id), change)
    }

    func editContent(_ change: (inout Data) -> Void) throws {
        die()
        try directory.edit(directory.data(id), change)
    }

    func makePipe(_ path: String) throws {
        die()
        try StrangeFile.pipe.replace(path, outside: directory.path)
    }
}

extension StateMaker {
    static let cases = received.merging(whole) { first, _ in first }
        .merging(damaged) { first, _ in first }

    private static let received: [String: Make] = [
        "created": { try $0.incoming("") },
        "receiving": { try $0.partlyPromised() },
        "unpromised": { try $0.incoming() },
        "unverified": { maker in
            let upload = try maker.incoming(promised: true)
            try upload.beginUnverified()
            try upload.append("not verified")
        },
        "unverified-unpromised": { maker in
            let upload = try maker.incoming()
            try upload.beginUnverified()
            try upload.append("not verified")
        },
        "too-long": { maker in
            let upload = try maker.incoming(promised: true)
            try upload.setLength(upload.state.offset)
            try upload.append("more")
        },
        "in-use": { try $0.incoming(inMemory: true) },
        "part": { try $0.incoming(promised: true, fields: .part).goInto(.random()) },
        "joining": { try $0.incoming(fields: .joined) },
    ]

    private static let whole: [String: Make] = [
        "deferred": { maker in
            let upload = try maker.incoming(promised: true)
            try upload.postpone(reason: "not reached", .queue(.now))
            try upload.sync()
        },
        "deferred-undurable": { maker in
            try maker.partlyPromised().postpone(reason: "no free place", .client(.now))
        },
        "deferred-unpromised": { try $0.incoming().postpone(reason: nil, .queue(.now)) },
        "deferred-empty": { maker in
            let upload = try maker.incoming("")
            try upload.postpone(reason: nil, .queue(.now))
            try upload.sync()
        },
        "joined": { maker in
            let upload = try maker.incoming(fields: .joined)
            try upload.postpone(reason: nil, .client(.now))
            try upload.sync()
        },
        "joined-unpromised": { maker in
            try maker.incoming(fields: .joined).postpone(reason: nil, .client(.now))
        },
        "joined-undurable": { maker in
            let upload = try maker.incoming(promised: true, fields: .joined)
            try upload.append("more, not promised")
            try upload.postpone(reason: nil, .client(.now))
        },
        "attempt-repeatable": { try $0.incoming(promised: true).beginAttempt() },
        "attempt-undurable": { try $0.partlyPromised().beginAttempt() },
        "attempt-unpromised": { try $0.incoming().beginAttempt() },
        "attempt-in-memory": { try $0.incoming(inMemory: true).beginAttempt() },
        "attempt-once": { maker in
            try maker.incoming(promised: true, repeatable: false).beginAttempt()
        },
        "attempt-once-unpromised": { try $0.incoming(repeatable: false).beginAttempt() },
        "attempt-once-in-memory": { maker in
            try maker.incoming(inMemory: true, repeatable: false).beginAttempt()
        },
        "held": { try $0.incoming().hold(.held, reason: "wait") },
        "held-undurable": { maker in maker.beginHold(try maker.partlyPromised()) },
        "held-unpromised": { maker in maker.beginHold(try maker.incoming()) },
        "held-cut-back": { maker in
            let upload = try maker.partlyPromised()
            maker.disk.refuse(.sync, on: ".data", errno: SystemError.lost, times: 1)
            try upload.hold(.failed, reason: "refused")
        },
        "held-without-content": { maker in
            try maker.incoming(inMemory: true, repeatable: false).beginAttempt()
            maker.die()
            #expect(try maker.directory.open().lock(maker.id)?.holdCause == .indeterminate)
        },
        "done": { try $0.delivered(promised: true) },
        "done-unpromised": { try $0.delivered(promised: false) },
        "done-briefly": { maker in
            let upload = try maker.incoming(promised: true)
            try upload.beginAttempt()
            // The response does not fit, with or without its content.
            maker.disk.refuse(.write, errno: ENOSPC, times: 2)
            try upload.finish(with: .sample)
        },
        "done-with-content": { maker in
            try maker.delivered(promised: true)
            try maker.restoreContent()
        },
        "done-torn": { maker in
            try maker.delivered(promised: false)
            try maker.editRecord { $0[$0.count - 30] ^= 1 }
        },
        "done-response-lost": { maker in
            let upload = try maker.incoming(promised: true)
            try upload.postpone(reason: nil, .queue(.now))
            try upload.sync()
            try upload.beginAttempt()
            // The response, the state and the name, but not the sync.
            maker.disk.die(after: 3)
            #expect(throws: SpoolError.self) { try upload.finish(with: .sample) }
            try maker.editRecord { $0[$0.count - 30] ^= 1 }
        },
        "done-damaged": { maker in
            try maker.delivered(promised: true)
            try maker.editRecord { $0[$0.count - 30] ^= 1 }
        },
    ]

    // States that no crash leaves.
    private static let damaged: [String: Make] = [
        "content-lost": { maker in
            try maker.incoming(promised: true)
            maker.die()
            try FileManager.default.removeItem(atPath: maker.directory.data(maker.id))
        },
        "content-short": { maker in
            try maker.incoming(promised: true)
            try maker.editContent { $0.removeLast() }
        },
        "content-unfit": { maker in
            let upload = try maker.incoming(promised: true)
            try upload.postpone(reason: "not reached", .queue(.now))
            try upload.sync()
            try maker.editContent { $0.append(1) }
        },
        "content-no-file": { maker in
            try maker.incoming(promised: true)
            try maker.makePipe(maker.directory.data(maker.id))
        },
        "slot-damaged": { maker in
            try maker.partlyPromised()
            try maker.editRecord { $0[Int(RecordSlots.block) + 20] ^= 1 }
        },
        "slots-damaged": { maker in
            try maker.incoming(promised: true)
            try maker.editRecord { record in
                for start in RecordSlots.promised { record[Int(start) + 20] ^= 1 }
            }
        },
        "record-unwritten": { maker in
            try maker.incoming("")
            try maker.editRecord { $0 = Data() }
        },
        "record-torn": { maker in
            try maker.incoming()
            try maker.editRecord { $0.resetBytes(in: Int(RecordSlots.end)..<$0.count) }
        },
        "record-damaged": { maker in
            try maker.incoming(promised: true)
            try maker.editRecord { $0[Int(RecordSlots.end) + 50] ^= 1 }
        },
        "record-of-another": { maker in
            let other = try maker.spool.create(.sample(), requestRelease: {}).creation.id
            try maker.restoreContent()
            try FileManager.default.moveItem(
                atPath: maker.directory.record(other),
                toPath: maker.directory.record(maker.id)
            )
        },
        "record-no-file": { maker in
            try maker.incoming(promised: true)
            try maker.makePipe(maker.directory.record(maker.id))
        },
        "record-newer": { maker in
            try maker.incoming(promised: true)
            try maker.editRecord { record in
                // The older of the two, which must not take precedence.
                let slot = Array(record.prefix(RecordSlots.size))
                var line = Checksum.verified(slot[...], for: maker.id).map { Array($0) } ?? []
                line = Array(
                    String(decoding: line, as: UTF8.self)
                        .replacing(" reason=", with: " node=a reason=").utf8
                )
                line += Checksum.field(of: line, for: maker.id)
                line += [UInt8](repeating: 32, count: RecordSlots.size - 1 - line.count) + [10]
                record.replaceSubrange(0..<RecordSlots.size, with: line)
            }
        },
        "response-newer": { maker in
            try maker.delivered(promised: true)
            let part = try #require(maker.directory.state(of: maker.id)?.response)
            try maker.editRecord { record in
                var text = Array(record[Int(part.lowerBound)..<Int(part.upperBound)])
                text = text.dropLast(LineWriter.sumSize)
                text["spoolgate-response ".utf8.count] += 1
                let digits = Checksum.field(of: text, for: maker.id).suffix(Checksum.digitCount)
                text += Array("sum ".utf8) + digits + [10]
                record.replaceSubrange(Int(part.lowerBound)..<Int(part.upperBound), with: text)
            }
        },
        "name-missing": { maker in
            let upload = try maker.incoming()
            try upload.postpone(reason: nil, .queue(WallTime(seconds: 1)))
            try upload.sync()
            maker.die()
            let names = "\(maker.directory.path)/queue"
            try FileManager.default.removeItem(atPath: "\(names)/0000000001.\(maker.id)")
        },
        "name-stale": { maker in
            try maker.incoming(promised: true)
            maker.die()
            for time in [WallTime(seconds: 1), QueueName.never] {
                let name = QueueName(time, maker.id).text
                try Data().write(to: URL(filePath: "\(maker.directory.path)/queue/\(name)"))
            }
        },
        "no-record": { try $0.restoreContent() },
        "removal-begun": { maker in
            try maker.incoming(promised: true)
            maker.die()
            try maker.beginRemoval()
        },
        "removed-content": { maker in
            try maker.restoreContent()
            try maker.beginRemoval()
        },
        "removed-name": { try $0.beginRemoval() },
        "set-aside-content": { maker in
            let path = "\(maker.directory.path)/corrupt/\(maker.id).data"
            try Data(StateMaker.content.utf8).write(to: URL(filePath: path))
        },
        "set-aside": { maker in
            try maker.incoming(promised: true)
            maker.die()
            try FileManager.default.moveItem(
                atPath: maker.directory.record(maker.id),
                toPath: "\(maker.directory.path)/corrupt/\(maker.id)"
            )
        },
        "leftover": { maker in
            let path = "\(maker.directory.path)/tmp/leftover"
            try Data("left".utf8).write(to: URL(filePath: path))
            try FileManager.default.setAttributes(
                [.modificationDate: Date(timeIntervalSinceNow: -7200)],
                ofItemAtPath: path
            )
        },
    ]
}

extension Checksum {
    /// The checksum of a line, as ` sum=` and its digits.
    static func field(of line: [UInt8], for id: UploadID) -> [UInt8] {
        var text = ByteBuilder(room: fieldSize)
        text.put(mark)
        put(line.withUnsafeBufferPointer { sum(of: $0, for: id) }, into: &text)
        return text.array
    }
}
