// The text of records: writing, reading, and damage.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

@Suite("Records")
struct RecordTests {
    static let creations: [UploadCreation] = {
        var plain = UploadCreation.sample(owner: nil, address: nil)
        plain.scheme = nil
        var strange = UploadCreation.sample(
            owner: "o\\w\nn\r\0é",
            fields: fields([("A", [0x20, 0x21])])
        )
        strange.head.target = "/a\\b?c=%0A"
        strange.head.contentLength = .known(UploadLimits.maximumSize)
        strange.head.method = .init("M-SEARCH") ?? .get
        strange.created = WallTime(seconds: -1)
        strange.isRepeatable = false
        let repeated = UploadCreation.sample(
            fields: fields([
                ("X-One", Array("b".utf8)), ("x-two", []), ("x-ONE", Array("a: sum 0".utf8)),
                ("X-One", Array("b".utf8)),
            ])
        )
        let bytes = UploadCreation.sample(
            fields: fields([("X-Bytes", (1...255).filter { $0 != 10 && $0 != 13 }.map(UInt8.init))])
        )
        let long = UploadCreation.sample(
            fields: fields((0..<40).map { ("x-\($0)", [UInt8](repeating: 0x61, count: 500)) })
        )
        var granted = UploadCreation.sample(fields: fields([("X-User", Array("alice".utf8))]))
        granted.head.granted = [.made("X-User"), .authorization]
        return [plain, strange, repeated, bytes, long, granted]
    }()

    @Test("what the authorizer has set is recorded in the words of 0.1.0")
    func granted() throws {
        let creation = try #require(Self.creations.last)
        let text = creation.recordText
        #expect(
            String(decoding: text, as: UTF8.self)
                .contains("field X-User: alice\nfield spoolgate-set: X-User, Authorization\nsum ")
        )
        let read = try #require(try UploadCreation.read(recordText: text[...], of: creation.id)).0
        #expect(read == creation)
        #expect(read.head.fields.count == 1)
    }

    @Test("every line and every word is written as spoolgate-spool(5) says")
    func everyRow() throws {
        var creation = UploadCreation.sample(Self.id, owner: "a\\b\nc\rd\0é", promise: .process)
        creation.authorizedOwner = "bob"
        creation.maxSize = 7
        creation.head.contentLength = .known(5)
        let plain = UploadCreation(
            id: .random(),
            route: "",
            head: RequestHead(method: .get, target: "", fields: [:]),
            created: .now
        )
        Self.expectDifferent(creation, plain, except: ["kind"])
        let lines = """
            spoolgate-record 2
            id \(Self.id)
            route default
            owner a\\\\b\\nc\\rd\\0é
            authorized-owner bob
            max-size 7
            method POST
            target /files?x=1
            content-length 5
            resource /files/\(Self.id)
            remote 192.0.2.1
            scheme https
            created 1795000000
            repeatable yes
            promise process
            field Content-Type: text/plain
            sum 

            """
        let text = String(decoding: creation.recordText, as: UTF8.self)
        #expect(text.replacing(/sum [0-9a-f]{8}/, with: "sum ") == lines)
        let recorded = try UploadCreation.read(recordText: creation.recordText[...], of: Self.id)
        #expect(recorded?.0 == creation)
        let page = try Self.page()
        let names = lines.split(separator: "\n").dropFirst().compactMap {
            $0.split(separator: " ").first
        }
        #expect(page.lines == names.filter { $0 != "field" && $0 != "sum" })
        var state = RecordState(sequence: 6, queue: .hold, writer: "w", durable: 1, length: 2)
        (state.attempts, state.response, state.completion) = (3, 10240..<10250, 9600..<9700)
        state.whole = WallTime(seconds: 4)
        state.next = WallTime(seconds: 5)
        state.until = WallTime(seconds: 6)
        (state.then, state.cause, state.verified, state.final) = (.hold, .failed, 8, Self.id)
        state.accepted = WallTime(seconds: 9)
        state.reason = "r"
        Self.expectDifferent(state, RecordState(), except: ["status"])
        let written = try #require(
            Checksum.verified(state.slot(for: Self.id)[...], for: Self.id)
                .map { String(decoding: $0, as: UTF8.self) }
        )
        #expect(page.words == written.split(separator: " ").map { $0.prefix { $0 != "=" } })
        #expect(
            written
                == "sequence=6 state=hold writer=w durable=1 length=2 attempts=3 response=10240+10"
                + " completion=9600+100 whole=4 next=5 until=6 then=hold cause=failed verified=8"
                + " final=\(Self.id) accepted=9 reason=r"
        )
        #expect(Self.read([state], isPromised: true) == state)
        let empty = RecordState().slot(for: Self.id).prefix(75)
        #expect(
            String(decoding: empty, as: UTF8.self)
                == "sequence=0 state=incoming writer= durable=- length=- attempts=0 response=- "
        )
    }

    /// Requires that each property differs, so that no row of a record is missing from a test.
    private static func expectDifferent<T>(_ value: T, _ plain: T, except names: Set<String>) {
        for (one, other) in zip(
            Mirror(reflecting: value).children,
            Mirror(reflecting: plain).children
        )
        where !names.contains(one.label ?? "") {
            #expect("\(one.value)" != "\(other.value)", "\(one.label ?? "") is not set")
        }
    }

    /// The names that spoolgate-spool(5) gives the lines of a creation and the words of a state, in the order of
    /// writing.
    private static func page() throws -> (lines: [Substring], words: [Substring]) {
        let page = try String(
            contentsOf: URL(filePath: #filePath).deletingLastPathComponent()
                .appending(path: "../../deploy/man/spoolgate-spool.5"),
            encoding: .utf8
        )
        let creation = try #require(
            page.firstMatch(of: /The creation is the line\n([\s\S]*?)omitted/)
        )
        let lines = creation.1.split(separator: "\n").filter { $0.hasPrefix(".Ar ") }
            .flatMap { $0.split(separator: " ").dropFirst().filter { $0 != "," } }
        var words = page.matches(of: /\.It Ar ([a-z-]+) Ta/).map(\.1).filter { $0 != "reason" }
        words = ["sequence"] + words + ["reason"]
        return (lines, words)
    }

    private static func fields(_ lines: [(String, [UInt8])]) -> HTTPFields {
        var fields = HTTPFields()
        for (name, value) in lines {
            guard let name = HTTPField.Name(name) else { continue }
            fields.append(HTTPField(name: name, lenientValue: value))
        }
        return fields
    }

    /// Every field line with its bytes: `HTTPFields` compares neither case nor order across names.
    private static func lines(_ fields: HTTPFields) -> [[UInt8]] {
        fields.map { field in
            Array(field.name.rawName.utf8) + [0] + field.withUnsafeBytesOfValue { Array($0) }
        }
    }

    @Test(
        "a state number beyond fifteen digits is not believed, so that counting can continue",
        arguments: [
            UInt64(UploadLimits.maximumSize), UInt64(UploadLimits.maximumSize) + 1,
            UInt64(Int64.max) - 1,
        ]
    )
    func largest(sequence: UInt64) {
        let isTaken = sequence <= UInt64(UploadLimits.maximumSize)
        let number = Int64(clamping: sequence)
        var states = [RecordState](repeating: RecordState(length: 3), count: 8)
        states[0].sequence = sequence
        states[1].durable = number
        states[2].length = number
        states[3].attempts = Int(number)
        states[4].whole = WallTime(seconds: number)
        states[5].next = WallTime(seconds: number)
        states[6].verified = number
        states[7].response = number..<number + 1
        for state in states {
            let read = Self.read([state])
            #expect(read == (isTaken ? state : nil), "\(state)")
        }
    }

    private static let id = UploadID(high: 1, low: 2)

    /// The newest state after these were written, each to its slot; `isPromised`: the content is durable.
    private static func read(_ states: [RecordState], isPromised: Bool = false) -> RecordState? {
        let slots = states.map { ($0.position(isPromised: isPromised), $0.slot(for: id)) }
        guard case .state(let state, isPromised, false) = RecordSlots.read(record(slots), of: id)
        else {
            return nil
        }
        return state
    }

    /// The first bytes of a record with these slots.
    private static func record(_ slots: [(Int64, [UInt8])]) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: Int(RecordSlots.end))
        for (position, slot) in slots {
            bytes.replaceSubrange(Int(position)..<Int(position) + slot.count, with: slot)
        }
        return bytes
    }

    @Test("a creation is remembered unless its text is long", arguments: [100, 40_000])
    func remembering(size: Int) {
        let cache = CreationCache()
        let value = String(repeating: "v", count: size)
        let creation = UploadCreation.sample(fields: [.userAgent: value])
        let text = creation.recordText
        cache.remember(creation, text: text[...])
        let known = cache.creation(creation.id, in: text[...])
        #expect((known != nil) == (text.count <= CreationCache.longest))
        #expect((known != nil) == (size == 100))
    }

    @Test("a creation reads back as it was written, byte for byte", arguments: creations)
    func creationRoundTrip(creation: UploadCreation) throws {
        let text = creation.recordText
        let (read, count) = try #require(
            try UploadCreation.read(recordText: text[...], of: creation.id)
        )
        #expect(count == text.count)
        #expect(read == creation)
        #expect(Self.lines(read.head.fields) == Self.lines(creation.head.fields))
    }

    @Test("a creation is read from the disk by another process", arguments: creations)
    func creationOnDisk(creation: UploadCreation) throws {
        let directory = TemporarySpool()
        try directory.open().create(creation, length: 7, requestRelease: {}).unlock()
        let upload = try #require(try directory.open().lock(creation.id))
        #expect(upload.creation == creation)
        #expect(Self.lines(upload.creation.head.fields) == Self.lines(creation.head.fields))
        #expect(upload.state == UploadState(offset: 0, length: 7))
        #expect(try directory.open().summaries().first?.creation == creation)
    }

    @Test("every changed, missing or added byte of a creation is detected")
    func creationDamage() throws {
        let creation = UploadCreation.sample()
        let (text, id) = (creation.recordText, creation.id)
        for index in text.indices {
            var changed = text
            changed[index] ^= 0x20
            #expect(throws: UnreadableRecord.self, "byte \(index)") {
                // Nil: the text ends early, an error in a whole file.
                if try UploadCreation.read(recordText: changed[...], of: id) == nil {
                    throw UnreadableRecord(reason: "cut off")
                }
            }
        }
        for count in text.indices {
            #expect(try UploadCreation.read(recordText: text[..<count], of: id) == nil)
        }
    }

    static let responses: [StoredResponse] = [
        .sample,
        StoredResponse(head: ResponseHead(status: 204), content: nil),
        StoredResponse(head: ResponseHead(status: 200), content: []),
        StoredResponse(
            head: ResponseHead(
                status: .init(code: 599, reasonPhrase: "Über"),
                fields: fields([("Set-Cookie", [0xff]), ("Set-Cookie", [0x62])])
            ),
            content: Array(0...255) + Array("\nsum 0000\n".utf8)
        ),
    ]

    @Test("a response reads back as it was written, byte for byte", arguments: responses)
    func responseRoundTrip(response: StoredResponse) throws {
        let directory = TemporarySpool()
        let creation = UploadCreation.sample()
        let upload = try directory.open().create(creation, requestRelease: {})
        try upload.beginAttempt()
        #expect(try upload.response() == nil)
        try upload.finish(with: response)
        #expect(try upload.response() == response)
        upload.unlock()
        let read = try #require(try directory.open().lock(creation.id)?.response())
        #expect(read == response)
        #expect(read.head.status.reasonPhrase == response.head.status.reasonPhrase)
        #expect(Self.lines(read.head.fields) == Self.lines(response.head.fields))
    }

    @Test("every changed byte of a response is detected")
    func responseDamage() throws {
        let text = StoredResponse.sample.recordText(of: Self.id)
        for index in text.indices {
            var changed = text
            changed[index] ^= 0x20
            #expect(throws: UnreadableRecord.self, "byte \(index)") {
                try StoredResponse(recordText: changed, of: Self.id)
            }
        }
    }

    static let states: [RecordState] = {
        var full = RecordState(length: UploadLimits.maximumSize)
        full.sequence = UInt64(UploadLimits.maximumSize) - 1
        full.durable = UploadLimits.maximumSize
        full.attempts = Int(UploadLimits.maximumSize)
        full.reason = String(repeating: "x", count: 200)
        full.response = 1024..<(1 << 40)
        var text = RecordState()
        text.sequence = 3
        text.durable = 0
        text.reason = "curl: (7) sum=0123456789abcdef reason= é"
        var part = full
        part.final = id
        return [RecordState(), RecordState(length: 0), full, text, part]
    }()

    @Test("a state reads back from its slot", arguments: states, [false, true])
    func slotRoundTrip(state: RecordState, isPromised: Bool) {
        let slot = state.slot(for: Self.id)
        #expect(slot.count == RecordSlots.size)
        #expect(slot.filter { $0 == UInt8(ascii: "\n") }.count == 1)
        #expect(Self.read([state], isPromised: isPromised) == state)
    }

    @Test(
        "the newer of two slots counts, and a torn one differs from one that was never written"
    )
    func tornSlot() {
        let older = RecordState(length: 5)
        var newer = older
        newer.sequence = 1
        newer.durable = 3
        #expect(Self.read([older, newer]) == newer)
        let (old, new) = (older.slot(for: Self.id), newer.slot(for: Self.id))
        let end = new.lastIndex { $0 != UInt8(ascii: " ") && $0 != UInt8(ascii: "\n") } ?? 0
        for count in 1...end {
            let torn = new.prefix(count) + old.dropFirst(count)
            let bytes = Self.record([
                (RecordSlots.early[0], old), (RecordSlots.early[1], Array(torn)),
            ])
            guard
                case .state(older, isPromised: false, isOtherDamaged: true) =
                    RecordSlots.read(bytes, of: Self.id)
            else {
                Issue.record("torn after \(count) bytes")
                return
            }
        }
        let swapped = Self.record([(RecordSlots.early[0], new), (RecordSlots.early[1], old)])
        guard case .damaged = RecordSlots.read(swapped, of: Self.id) else {
            Issue.record("exchanged slots were accepted")
            return
        }
    }

    @Test("after the first promise no earlier state counts")
    func promised() {
        var early = RecordState(length: 5)
        early.sequence = 9
        var promised = RecordState(length: 5)
        promised.sequence = 4
        let bytes = Self.record([
            (early.position(isPromised: false), early.slot(for: Self.id)),
            (promised.position(isPromised: true), promised.slot(for: Self.id)),
        ])
        guard
            case .state(promised, isPromised: true, isOtherDamaged: false) =
                RecordSlots.read(bytes, of: Self.id)
        else {
            Issue.record("\(RecordSlots.read(bytes, of: Self.id))")
            return
        }
    }

    @Test("a block of another record never matches")
    func otherRecord() {
        let bytes = Self.record([(RecordSlots.early[0], RecordState().slot(for: .random()))])
        guard case .damaged = RecordSlots.read(bytes, of: Self.id) else {
            Issue.record("it was accepted")
            return
        }
    }

    @Test(
        "an upload with an unknown word is left alone, regardless of its older state",
        arguments: ["then=later", "node=a", "state=sending", "sequence=7 writer=x"]
    )
    func newerWord(word: String) throws {
        let directory = TemporarySpool()
        let creation = UploadCreation.sample()
        let upload = try directory.open().create(creation, requestRelease: {})
        try upload.append("content")
        upload.unlock()
        let state = try #require(directory.state(of: creation.id))
        let text = "sequence=\(state.sequence + 1) \(word) reason="
        var slot = Array(text.utf8)
        slot += Checksum.field(of: slot, for: creation.id)
        slot += [UInt8](repeating: 32, count: RecordSlots.size - 1 - slot.count) + [10]
        var next = state
        next.sequence += 1
        let start = Int(next.position(isPromised: true))
        try directory.edit(directory.record(creation.id)) {
            $0.replaceSubrange(start..<start + slot.count, with: slot)
        }
        let before = FileManager.default.contents(atPath: directory.record(creation.id))
        directory.cutPower()
        let spool = try directory.open()
        _ = spool.recover()
        #expect {
            try spool.lock(creation.id)
        } throws: { error in
            if case .newer(creation.id, _)? = error as? SpoolError { true } else { false }
        }
        let summary = try #require(try spool.summaries().first)
        #expect(summary.reason?.contains("newer version") == true)
        #expect(try !spool.remove(creation.id, ifUnchangedSince: summary))
        #expect(FileManager.default.contents(atPath: directory.record(creation.id)) == before)
        #expect(directory.content(of: creation.id) == Array("content".utf8))
    }

    @Test(
        "the joining upload's name is an identity; any other word belongs to a newer program",
        arguments: ["", "-", "1", "0000000000000000000000000", "000000000000000000000000000"]
    )
    func unknownFinal(value: String) throws {
        var state = RecordState(length: 3)
        state.final = Self.id
        let slot = state.slot(for: Self.id)
        let line = try #require(Checksum.verified(slot[...], for: Self.id))
        #expect(String(decoding: line, as: UTF8.self).hasSuffix(" final=\(Self.id) reason="))
        var other = Array(
            String(decoding: line, as: UTF8.self).replacing("\(Self.id)", with: value).utf8
        )
        other += Checksum.field(of: other, for: Self.id)
        other += RecordSlots.empty[other.count...]
        let bytes = Self.record([(RecordSlots.early[0], other)])
        guard case .newer("final=\(value)") = RecordSlots.read(bytes, of: Self.id) else {
            Issue.record("\(RecordSlots.read(bytes, of: Self.id))")
            return
        }
    }

    @Test("a reason of any text fits on its line")
    func longReason() throws {
        var state = RecordState()
        state.reason = String(repeating: "é\n", count: 400)
        let read = try #require(Self.read([state]))
        #expect(read.reason?.hasPrefix("é é é") == true)
    }

    @Test(
        "checksums are CRC32C",
        arguments: [("123456789", 0xe306_9283), ("", 0)] as [(String, UInt32)]
    )
    func checksum(text: String, expected: UInt32) {
        func sum(of bytes: some Sequence<UInt8>, after before: UInt32 = 0) -> UInt32 {
            Array(bytes).withUnsafeBufferPointer { Checksum.sum($0, after: before) }
        }
        #expect(sum(of: text.utf8) == expected)
        let (head, tail) = (text.utf8.prefix(4), text.utf8.dropFirst(4))
        #expect(sum(of: tail, after: sum(of: head)) == expected)
    }
}
