// Content with other hard links, dropped or handed over, stays unchanged, whatever happens to the upload after a power
// failure.

import Foundation
import SpoolgatePosix
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

@Suite("Content with a name outside the spool")
struct SharedContentTests {
    private let directory = TemporarySpool()
    private var drop: String { "\(directory.path).drop" }

    /// An upload with `promised` durable bytes, whose `content` was dropped before a power failure.
    private func dropped(_ content: String, promised: Int) throws -> UploadID {
        let upload = try directory.open().create(.sample(), requestRelease: {})
        try upload.append(String(content.prefix(promised)))
        try upload.sync()
        try upload.append(String(content.dropFirst(promised)))
        let id = upload.creation.id
        try #require(link(directory.data(id), drop) == 0)
        upload.files.close()
        directory.cutPower()
        return id
    }

    private var atDrop: String? {
        FileManager.default.contents(atPath: drop).map { String(decoding: $0, as: UTF8.self) }
    }

    private func text(of id: UploadID) -> String? {
        directory.content(of: id).map { String(decoding: $0, as: UTF8.self) }
    }

    private func names(_ id: UploadID) throws -> Int {
        try FileManager.default.attributesOfItem(atPath: directory.data(id))[.referenceCount]
            as? Int ?? 0
    }

    private func temporaries() throws -> Int {
        try FileManager.default.contentsOfDirectory(atPath: "\(directory.path)/tmp").count
    }

    private func ageTemporaries() throws {
        let path = "\(directory.path)/tmp"
        for name in try FileManager.default.contentsOfDirectory(atPath: path) {
            try FileManager.default.setAttributes(
                [.modificationDate: Date(timeIntervalSinceNow: -7200)],
                ofItemAtPath: "\(path)/\(name)"
            )
        }
    }

    @Test("is neither truncated nor appended to when its upload continues", arguments: [6, 7, 13])
    func goesOn(promised: Int) throws {
        defer { unlink(drop) }
        let id = try dropped("first, second", promised: promised)
        let spool = try directory.open(quota: 1 << 20)
        let upload = try #require(try spool.lock(id))
        #expect(upload.state.offset == Int64(promised))
        #expect(atDrop == "first, second")
        try upload.append("another")
        try upload.sync()
        upload.unlock()
        #expect(atDrop == "first, second")
        #expect(text(of: id) == "first, second".prefix(promised) + "another")
        #expect(try names(id) == 1)
        #expect(try temporaries() == 0)
        let recount = try directory.open(quota: 1 << 20)
        #expect(spool.figures.bytes == recount.figures.bytes)
    }

    @Test("is not appended to through a loan")
    func lent() throws {
        defer { unlink(drop) }
        let id = try dropped("first, second", promised: 13)
        let upload = try #require(try directory.open().lock(id))
        do {
            let file = try upload.lend(upTo: 100)
            #expect(write(file.number, "more", 4) == 4)
        }
        #expect(try upload.takeBack(nil, until: .after(.seconds(30))))
        upload.unlock()
        #expect(atDrop == "first, second")
        #expect(text(of: id) == "first, secondmore")
    }

    @Test("is unchanged after any failed call and any crash, and the next attempt continues")
    func failures() throws {
        try Disk.Call.allCases.forEach { call in
            try goOn { $0.refuse(call, errno: SystemError.lost, times: 1) }
        }
        try (0..<30).forEach { number in try goOn { $0.die(after: number) } }
    }

    private func goOn(_ fail: (ScriptedDisk) -> Void) throws {
        let id = try dropped("first, second", promised: 6)
        defer { unlink(drop) }
        let scripted = ScriptedDisk()
        let spool = try directory.open(scripted.disk)
        fail(scripted)
        let upload = try? spool.lock(id)
        try? upload?.append("another")
        upload?.files.close()
        #expect(atDrop == "first, second")
        directory.cutPower()
        let next = try #require(try directory.open().lock(id))
        #expect(next.state.offset == 6)
        try next.append("other")
        try next.sync()
        next.unlock()
        #expect(text(of: id) == "first,other")
        #expect(atDrop == "first, second")
    }

    @Test(
        "a name that may not be durable has a second one, and the next user makes it durable"
    )
    func nameInDoubt() throws {
        defer { unlink(drop) }
        let id = try dropped("first, second", promised: 6)
        let scripted = ScriptedDisk()
        scripted.refuse(.syncDirectory, on: "/uploads/", errno: SystemError.lost)
        #expect(throws: SpoolError.self) { try directory.open(scripted.disk).lock(id) }
        #expect(try names(id) == 2)
        #expect(atDrop == "first, second")
        // Old files there belong to no process.
        try ageTemporaries()
        _ = try directory.open().recover()
        #expect(try names(id) == 2)
        let next = ScriptedDisk()
        let upload = try #require(try directory.open(next.disk).lock(id))
        try upload.append("another")
        upload.unlock()
        #expect(try names(id) == 1)
        #expect(next.places.contains("syncDirectory uploads"))
    }

    @Test("a copy that is dropped, too, keeps its second name as long as that file is there")
    func copyIsDropped() throws {
        let second = "\(drop)2"
        defer { for path in [drop, second] { unlink(path) } }
        let id = try dropped("first, second", promised: 6)
        let scripted = ScriptedDisk()
        scripted.refuse(.syncDirectory, on: "/uploads/", errno: SystemError.lost)
        #expect(throws: SpoolError.self) { try directory.open(scripted.disk).lock(id) }
        try #require(link(directory.data(id), second) == 0)
        let spool = try directory.open()
        try spool.lock(id)?.remove(durably: true)
        try ageTemporaries()
        _ = spool.recover()
        #expect(try temporaries() == 1)
        unlink(second)
        try spool.removeTemporaries()
        #expect(try temporaries() == 0)
    }

    @Test("a copy that a crash has left with two temporary names is removed at once")
    func copyWithoutPlace() throws {
        let spool = try directory.open()
        // Either name may be the first in the directory.
        for number in 0..<20 {
            let pair = ["content.\(number)", "\(number)"].map { "\(directory.path)/tmp/\($0)" }
            let names = number < 10 ? pair : pair.reversed()
            try #require(FileManager.default.createFile(atPath: names[0], contents: nil))
            try #require(link(names[0], names[1]) == 0)
        }
        try ageTemporaries()
        try spool.removeTemporaries()
        #expect(try temporaries() == 0)
    }
}

@Suite("Content that is truncated during a loan")
struct ShortenedContentTests {
    @Test("is not reported as an offset", arguments: [true, false])
    func shortened(isNoted: Bool) throws {
        let directory = TemporarySpool()
        let upload = try directory.open().create(.sample(), requestRelease: {})
        defer { upload.unlock() }
        try upload.append("promised")
        try upload.sync()
        do {
            let file = try upload.lend(upTo: 100)
            #expect(write(file.number, "more", 4) == 4)
            try upload.content.noteAdded(4)
            #expect(truncate(directory.data(upload.creation.id), 3) == 0)
            if isNoted { #expect(throws: SpoolError.self) { try upload.content.noteAdded(5) } }
        }
        #expect(throws: SpoolError.self) { try upload.takeBack(4, until: .after(.seconds(30))) }
        #expect(upload.state.offset == 12)
    }
}
