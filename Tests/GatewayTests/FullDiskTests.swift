// A full disk: uploads are refused, if possible before their content is read; none is lost, and everything that needs
// no room works.

import Glibc
import HTTPTypes
import Logging
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@Suite struct FullDiskTests {
    private func test(quota: Int64, origin: LoopbackOrigin? = nil) throws -> GatewayUnderTest {
        try GatewayUnderTest(origin.map { .http(base: $0.base) }, quota: quota)
    }

    // MARK: Before content is read

    @Test(
        "a creation that cannot fit is refused before its content is read, and creates nothing",
        arguments: [(nil, ContentLength.known(11)), (11, .unknown), (11, .known(5))]
            as [(Int64?, ContentLength)]
    )
    func creation(uploadLength: Int64?, length: ContentLength) throws {
        let test = try test(quota: 10)
        let record = test.serve(
            .creation(complete: uploadLength == nil, length: length, uploadLength: uploadLength)
        )
        #expect(record.events == [.head(507)])
        #expect(record[.contentType] == "application/problem+json")
        #expect(record[.retryAfter] != nil)
        #expect(record[.uploadComplete] == "?0")
        #expect(try test.summaries().isEmpty)
    }

    @Test(
        "an append that cannot fit is refused before its content is read; the upload is unharmed",
        arguments: [ContentLength.known(6), .unknown]
    )
    func append(length: ContentLength) throws {
        let test = try test(quota: 10)
        let location = test.createPartial("hello", uploadLength: 10)
        let other = test.createPartial("12345")
        let record = test.serve(
            .append(other, at: 5, ["67890a"], complete: length == .unknown, length: length)
        )
        #expect(record.events == [.head(507)])
        #expect(test.serve(.retrieval(other)).offset == 5)
        #expect(test.serve(.cancellation(location)).status == 204)
        let rest = test.serve(.append(other, at: 5, ["67890"]))
        #expect(rest.status == 201)
        #expect(try test.drops() == [Array("1234567890".utf8)])
    }

    @Test("excess content gets 507 in the middle, and continues once there is room")
    func middle() throws {
        let test = try test(quota: 10)
        let record = test.serve(.creation(["hello", "world!"], length: .unknown))
        #expect(record.status == 507)
        let location = try #require(record.location)
        #expect(test.serve(.retrieval(location)).offset == 5)
        #expect(test.serve(.append(location, at: 5, ["world"])).status == 201)
        #expect(try test.drops() == [Array("helloworld".utf8)])
    }

    @Test("excess content leaves nothing if its client knows no upload resource")
    func middleUnheard() throws {
        let test = try test(quota: 10)
        let record = test.serve(
            .creation(["hello", "world!"], length: .unknown, context: ExchangeContext.empty)
        )
        #expect(record.status == 507)
        #expect(record.location == nil)
        #expect(try test.summaries().isEmpty)
        let next = test.serve(.creation(["ten bytes."]))
        #expect(next.status == 201)
    }

    @Test("an ordinary upload of a known length is refused before its content is read")
    func plain() throws {
        let test = try test(quota: 100 << 10)
        let large = [UInt8](repeating: 7, count: 129 << 10)
        let record = test.serve(ScriptedExchange(.post, "/p", [:], [.bytes(large)]))
        #expect(record.events == [.head(507)])
        #expect(record[.uploadComplete] == nil)
        let unknown = ScriptedExchange(.post, "/p", [:], [.bytes(large)], length: .unknown)
        #expect(test.serve(unknown).status == 507)
        // Content in memory needs no room.
        #expect(test.serve(ScriptedExchange(.post, "/p", [:], ["x"])).status == 201)
    }

    @Test("a reload changes the reserve for new and running uploads")
    func reserveReloaded() throws {
        let test = try GatewayUnderTest(reserve: 0)
        let first = test.serve(
            .creation([.bytesThenFails(Array("hello".utf8), .truncated)], length: .unknown)
        )
        let location = try #require(first.location)
        test.reload { $0.spoolReserve = 1 << 50 }
        #expect(test.serve(.creation(["x"], length: .known(1 << 20))).status == 507)
        let rest = [UInt8](repeating: 0x78, count: 1 << 19)
        let more = { ScriptedExchange.append(location, at: 5, [.bytes(rest)], length: .unknown) }
        #expect(test.serve(more()).status == 507)
        test.reload { $0.spoolReserve = 0 }
        #expect(test.serve(more()).status == 201)
    }

    // MARK: Log messages

    @Test("a refusal for lack of room is logged with need, room, reserve and directory")
    func reserveReason() throws {
        let test = try GatewayUnderTest(reserve: 1 << 60)
        let record = test.serve(.creation([.bytes([UInt8](repeating: 7, count: 2 << 20))]))
        #expect(record.events == [.head(507)])
        #expect(try test.summaries().isEmpty)
        #expect(test.log.level(of: "spool error") == .error)
        let reason = try #require(test.log.values(of: "reason", in: "spool error").first)
        let pattern =
            #/not enough free space on (.+): 2\.0MiB needed, .+ free, 1048576\.0TiB must stay free; (.+)/#
        let match = try #require(reason.wholeMatch(of: pattern), "\(reason)")
        #expect(match.1 == test.spool.directory)
        #expect(match.2 == "make room there, or lower spool.reserve and reload")
    }

    @Test(
        "the true cause is reported if the disk itself has no room",
        arguments: [ENOSPC, EDQUOT, EFBIG]
    )
    func diskReason(errno: Int32) throws {
        let test = try GatewayUnderTest()
        test.disk.refuse(.create, errno: errno)
        #expect(test.serve(.creation(["x"])).status == 507)
        let reason = try #require(test.log.values(of: "reason", in: "spool error").first)
        let (cause, remedy) =
            switch errno {
            case ENOSPC: ("No space left on device", "make room")
            case EDQUOT: ("Disk quota exceeded", "make room")
            default: ("File too large", "raise this process's limit on file sizes")
            }
        #expect(reason.contains(cause))
        #expect(reason.contains("; \(test.spool.directory) has "))
        #expect(reason.contains(" free; \(remedy)"))
    }

    @Test("each kind of shortage has its figures and its fix")
    func sentences() {
        let none: Int64 = 0
        let figures: [(SpoolError, String)] = [
            (
                .full(directory: "/s", needed: none, free: 5 << 20, reserve: 8 << 20),
                "not enough free space on /s: 5.0MiB free, 8.0MiB must stay free; make room there, "
                    + "or lower spool.reserve and reload"
            ),
            (
                .fewFiles(directory: "/s", free: 812, reserve: 1000),
                "not enough free inodes on /s: 812 free, 1000 must stay free; remove files there, or make "
                    + "its file system with more inodes"
            ),
            (
                .overQuota(directory: "/s", needed: 2 << 20, used: 9 << 20, quota: 10 << 20),
                "quota of /s reached: 2.0MiB needed, 9.0MiB of 10.0MiB used; purge uploads or raise "
                    + "spool.quota"
            ),
        ]
        for (error, sentence) in figures { #expect(error.sentence == sentence) }
    }

    // MARK: Requests that still work

    @Test("on a full disk offsets are reported, and complete uploads are delivered and replayed")
    func onProgress() throws {
        let origin = try LoopbackOrigin(status: "201 Created", content: "stored")
        let test = try test(quota: 10, origin: origin)
        let location = test.createPartial("ten bytes.")
        // A disk without room for anything new. Slots are overwritten in place.
        test.disk.refuse(.create, errno: ENOSPC)
        test.disk.refuse(.write, on: ".data", errno: ENOSPC)
        #expect(test.serve(.retrieval(location)).offset == 10)
        #expect(test.serve(.creation(["x"])).status == 507)
        let delivered = test.serve(.append(location, at: 10))
        #expect(delivered.status == 201)
        #expect(try test.queue(of: location) == .delivered)
        let replayed = test.serve(.append(location, at: 10))
        #expect(replayed.status == 201)
        #expect(origin.requests.count == 1)
        test.disk.allow()
        #expect(test.serve(.creation(["x"])).status == 201)
    }

    @Test("a response that does not fit on the disk is relayed, and its status remembered")
    func response() throws {
        let slow = try SlowUpstream()
        let test = try GatewayUnderTest(slow.target)
        let (delivering, location) = try test.startDelivery(to: slow)
        // The response with its content, then without it.
        test.disk.refuse(.write, on: "/uploads/", errno: ENOSPC, times: 2)
        slow.gate.open()
        let record = try delivering.finish()
        #expect(record.status == 201)
        #expect(record.text == "stored")
        #expect(try test.queue(of: location) == .delivered)
        let replayed = test.serve(.append(location, at: 5))
        #expect(replayed.status == 201)
        #expect(replayed.text == "")
        #expect(slow.origin.requests.count == 1)
    }

    @Test(
        "running out of descriptors gives 503 and loses nothing",
        arguments: [EMFILE, ENFILE]
    )
    func exhausted(errno: Int32) throws {
        let test = try test(quota: 100)
        let location = test.createPartial("hello")
        test.disk.refuse(.create, errno: errno)
        let record = test.serve(.creation(["x"]))
        #expect(record.events == [.head(503)])
        #expect(record[.retryAfter] != nil)
        #expect(test.serve(.retrieval(location)).offset == 5)
        // For an existing upload, a 503 would be taken for its final response.
        test.disk.refuse(.write, on: ".data", errno: errno)
        let append = test.serve(.append(location, at: 5, ["!"]))
        #expect(append.isAborted && append.head == nil)
        test.disk.allow()
        #expect(test.serve(.append(location, at: 5, ["!"])).status == 201)
        #expect(test.serve(.creation(["x"])).status == 201)
    }

    @Test("a directory upstream without room gives 507; the upload is kept and moved later")
    func destination() throws {
        let test = try GatewayUnderTest()
        let mounted = mount("none", test.delivered, "tmpfs", 0, "size=64k")
        guard mounted == 0 else { try Test.cancel("a tmpfs cannot be mounted here") }
        defer { umount2(test.delivered, 2) }
        let content = [UInt8](repeating: 7, count: 100 << 10)
        let record = test.serve(.creation([.bytes(content)]))
        #expect(record.status == 507)
        #expect(record[.uploadComplete] == "?0")
        #expect(record.offset == Int64(content.count))
        let location = try #require(record.location)
        #expect(try test.queue(of: location) == .deferred)
        #expect(try test.drops().isEmpty)
        #expect(umount2(test.delivered, 2) == 0)
        let offset = Int64(content.count)
        #expect(test.serve(.append(location, at: offset)).status == 201)
        #expect(try test.drops() == [content])
    }
}
