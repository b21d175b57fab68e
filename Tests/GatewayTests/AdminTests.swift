// Responses to operators.

import Foundation
import HTTPTypes
@testable import SpoolgateExchange
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateAdmin
@testable import SpoolgateDelivery
@testable import SpoolgateJournal
@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

@Suite("Admin")
struct AdminTests {
    private let test: GatewayUnderTest

    init() throws { test = try GatewayUnderTest() }

    private func ask(
        _ target: String,
        _ method: HTTPRequest.Method = .get,
        of admin: Admin? = nil
    ) -> ScriptedExchange.Record {
        let exchange = ScriptedExchange(method, target, length: .unknown)
        (admin ?? Admin.of(test.gateway)).serve(exchange)
        return exchange.record
    }

    @Test(
        "a page is found by the last part of the path alone",
        arguments: [
            ("/live", "text/plain; charset=utf-8"),
            ("/-/spoolgate/live", "text/plain; charset=utf-8"),
            ("/-/spoolgate/", "text/html; charset=utf-8"), ("/", "text/html; charset=utf-8"),
            ("/a/ready?verbose", "application/json"), ("/a/status", "application/json"),
            ("/a/metrics", "text/plain; version=0.0.4; charset=utf-8"),
            ("/style.css", "text/css; charset=utf-8"),
            ("/-/spoolgate/page.js", "text/javascript; charset=utf-8"),
            ("/status.txt", "text/plain; charset=utf-8"),
        ]
    )
    func pages(target: String, type: String) {
        let record = ask(target)
        #expect(record.status == 200)
        #expect(record[.contentType] == type)
        #expect(record[.cacheControl] == "no-store")
        #expect(!record.content.isEmpty)
    }

    @Test("other names are 404, other methods 405", arguments: ["/", "/live", "/metrics"])
    func others(target: String) {
        #expect(ask(target + "x").status == 404)
        let record = ask(target, .post)
        #expect(record.status == 405)
        #expect(record[.allow] == "GET, HEAD")
        #expect(ask(target, .head).status == 200)
    }

    @Test("the writer of an upload's content, and the path of each route's last large content")
    func writers() throws {
        #expect(ask("/spool-receive").text == "default -\n")
        let large = [UInt8](repeating: 1, count: 300_000)
        let creation = ScriptedExchange.creation([.bytes(large)], complete: false, length: .unknown)
        let location = try #require(test.serve(creation.offer(ScriptedLane())).location)
        let id = try #require(location.split(separator: "/").last)
        #expect(ask("/-/spoolgate/uploads/\(id)").text == "nginx=300000 gateway=0 result=-\n")
        #expect(ask("/spool-receive").text == "default used\n")
        #expect(ask("/uploads/none0000000000000000000000").status == 404)
    }

    @Test("ready reports each check")
    func ready() {
        let record = ask("/ready")
        #expect(
            record.text == """
                {"ready":true,"checks":{"serving":"ok","accepting":"ok","threads":"ok 1/8",\
                "spool-writable":"ok","deliveries":"ok"}}

                """
        )
    }

    @Test(
        "without a free thread, or one that accepts, it is not ready",
        arguments: [
            (ListenerLoad(busy: 8, maximum: 8, isAccepting: true), "\"threads\":\"fail: "),
            (ListenerLoad(busy: 1, maximum: 8, isAccepting: false), "\"accepting\":\"fail: "),
        ]
    )
    func unready(load: ListenerLoad, words: String) {
        let admin = Admin.of(test.gateway, load: load)
        let record = ask("/ready", of: admin)
        #expect(record.status == 503)
        #expect(record.text.contains("\"ready\":false"))
        #expect(record.text.contains(words))
        #expect(ask("/live", of: admin).status == 200)
        #expect(admin.metricsText.contains("spoolgate_ready 0"))
        #expect(Status(of: admin).level == .critical)
    }

    @Test("it is not ready once the daemon stops")
    func ending() {
        let admin = Admin.of(test.gateway)
        admin.noteEnd()
        #expect(ask("/ready", of: admin).status == 503)
    }

    @Test("a spool in which no file can be created is not ready, a full one is")
    func writable() throws {
        for (errno, status) in [(30, 503), (28, 200)] as [(Int32, Int)] {
            test.disk.allow()
            test.disk.refuse(.create, on: "tmp", errno: errno)
            let admin = Admin.of(test.gateway)
            try admin.start()
            #expect(ask("/ready", of: admin).status == status)
        }
    }

    @Test(
        "a spool in which uploads would fail is not ready, critical in the status and in the metrics",
        arguments: ["create", "pwrite", "fdatasync", "fsync", "unlinkat", "directory"]
    )
    func trial(fault: String) throws {
        if let call = Disk.Call.allCases.first(where: { $0.rawValue == fault }) {
            test.disk.refuse(call, on: "tmp", errno: EIO)
        } else if fault == "create" {
            test.disk.refuse(.create, on: "uploads", errno: EACCES)
        } else {
            rmdir("\(test.spool.directory)/uploads/a")
        }
        let admin = Admin.of(test.gateway)
        try admin.start()
        #expect(ask("/ready", of: admin).status == 503)
        #expect(ask("/ready", of: admin).text.contains("\"spool-writable\":\"fail: "))
        #expect(ask("/status.txt", of: admin).text.hasPrefix("CRITICAL: "))
        #expect(ask("/status", of: admin).text.contains("\"level\":\"CRITICAL\""))
        #expect(admin.metricsText.contains("spoolgate_ready 0\n"))
    }

    struct Concern: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var change: @Sendable (Gateway) -> Void
        var words: String
        var json: String
        var metric: String
    }

    @Test(
        "failures of single uploads are a warning, and leave it ready",
        arguments: [
            Concern(
                testDescription: "a corrupt upload that a request finds",
                change: {
                    let id = UploadID.random()
                    $0.deliveries.journal.spoolFailed(.corrupt(id, reason: "x"), upload: id)
                },
                words: "1 corrupt upload (run spoolgate list --state corrupt",
                json: "\"corrupt\":1,",
                metric: "spoolgate_uploads{queue=\"corrupt\",cause=\"\"} 1"
            ),
            Concern(
                testDescription: "a corrupt upload that recovery finds",
                change: { $0.deliveries.journal.setAside(.random(), reason: "x") },
                words: "1 corrupt upload (run spoolgate list --state corrupt",
                json: "\"corrupt\":1,",
                metric: "spoolgate_uploads{queue=\"corrupt\",cause=\"\"} 1"
            ),
            Concern(
                testDescription: "files that recovery cannot read",
                change: { $0.metrics.unrecovered.set(12) },
                words: "recovery failed for 12 uploads",
                json: "\"unrecovered\":12,",
                metric: "spoolgate_spool_unrecovered 12"
            ),
            Concern(
                testDescription: "a file of root's",
                change: {
                    let error = SystemError(
                        call: "openat",
                        subject: "/s/uploads/0/x",
                        errno: EACCES
                    )
                    $0.deliveries.journal.spoolFailed(.disk(error), upload: nil)
                },
                words: "1 spool error in the last 5 minutes; last: ",
                json: "\"spool-errors\":1,",
                metric: "spoolgate_spool_errors_total 1"
            ),
        ]
    )
    func concerns(concern: Concern) throws {
        let admin = Admin.of(test.gateway)
        #expect(Status(of: admin).level == .ok)
        concern.change(test.gateway)
        let status = Status(of: admin)
        #expect(status.level == .warning)
        #expect(status.concerns.count == 1, "\(status.concerns)")
        #expect(status.text.hasPrefix("WARNING: "))
        #expect(status.text.contains(concern.words), "\(status.text)")
        #expect(status.json.text.contains(concern.json), "\(status.json.text)")
        #expect(admin.metricsText.contains("\n\(concern.metric)\n"))
        #expect(ask("/ready", of: admin).status == 200)
    }

    @Test("a corrupt upload no longer waits for its next attempt")
    func corruptWaits() throws {
        let slow = try SlowUpstream(then: "")
        let test = try GatewayUnderTest(slow.target)
        let (running, location) = try test.startDelivery(to: slow)
        slow.gate.open()
        _ = try running.finish()
        let id = try test.id(location)
        #expect(Status(of: Admin.of(test.gateway)).needy.first.map(\.id) == [id])
        test.gateway.deliveries.journal.spoolFailed(.corrupt(id, reason: "x"), upload: id)
        let status = Status(of: Admin.of(test.gateway))
        #expect(status.needy.count == 0 && status.waiting.count == 0)
        #expect(status.corrupt == 1)
    }

    @Test(
        "the free space is read when it is asked for, and no request waits long for a stalled disk"
    )
    func freshSpace() throws {
        let whole = try test.spool.space()
        let free = Monitor<Int64?>(1)
        let sampler = Sampler(test.spool) {
            let read = free.wait(until: .after(.seconds(60))) { $0 }
            return read.map { bytes in
                var space = whole
                space.freeBytes = bytes
                return space
            }
        }
        try sampler.start { false }
        for bytes in [2, 3] as [Int64] {
            free.update { $0 = bytes }
            #expect(sampler.sample.space?.freeBytes == bytes)
        }
        free.update { $0 = nil }
        let watch = Stopwatch()
        for _ in 0..<3 { #expect(sampler.sample.space?.freeBytes == 3) }
        #expect(watch.nanoseconds < 20_000_000_000)
        free.update { $0 = 4 }
        try eventually("the disk answers again") { sampler.sample.space?.freeBytes == 4 }
    }

    @Test("a nearly exhausted quota is a concern, and leaves it ready")
    func quota() throws {
        let test = try GatewayUnderTest(quota: 10_000)
        let admin = Admin.of(test.gateway)
        #expect(Status(of: admin).level == .ok)
        let location = test.serve(
            .creation(
                [.bytesThenFails([UInt8](repeating: 0x78, count: 9_001), .truncated)],
                length: .known(9_500)
            )
        ).location
        #expect(location != nil)
        let status = Status(of: admin)
        #expect(status.level == .warning)
        #expect(status.concerns.contains { $0.hasSuffix("of the quota of 10.0 kB used") })
        #expect(ask("/ready", of: admin).status == 200)
    }

    struct Full: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var quota: Int64?
        var change: @Sendable (inout Settings) -> Void = { _ in }
        var cause: String
        var words: String
    }

    @Test(
        "a spool that refuses uploads is critical, with the reason, and stays ready",
        arguments: [
            Full(
                testDescription: "the reserve",
                change: { $0.spoolReserve = 1 << 50 },
                cause: "reserve",
                words: "not enough free space on "
            ),
            Full(
                testDescription: "the quota",
                quota: 10,
                cause: "quota",
                words: "of 10B used; purge uploads or raise spool.quota"
            ),
            Full(
                testDescription: "the number of uploads",
                change: { $0.maximumUploads = 1 },
                cause: "uploads",
                words: "spool.maximum-uploads"
            ),
        ]
    )
    func full(full: Full) throws {
        let test = try GatewayUnderTest(quota: full.quota)
        _ = test.createPartial("ten bytes.")
        let admin = Admin.of(test.gateway)
        if full.quota == nil { #expect(Status(of: admin).full.isEmpty) }
        test.reload(full.change)
        try admin.start()
        #expect(test.serve(.creation(["x"], length: .known(200_000))).status == 507)
        let status = Status(of: admin)
        #expect(status.level == .critical)
        #expect(status.full.compactMap(\.fullness?.rawValue) == [full.cause])
        let sentence = try #require(status.concerns.first)
        #expect(sentence.hasPrefix("uploads are refused with 507: "), "\(sentence)")
        #expect(sentence.contains(full.words), "\(sentence)")
        #expect(status.concerns.count == 1, "\(status.concerns)")
        #expect(status.line.hasSuffix("spool full") || status.line.contains("spool full, "))
        #expect(ask("/", of: admin).text.contains("uploads are refused with 507"))
        #expect(status.json.text.contains("\"full\":[\"\(full.cause)\"]"))
        for cause in ["reserve", "quota", "files", "uploads"] {
            let line = "spoolgate_spool_full{cause=\"\(cause)\"} \(cause == full.cause ? 1 : 0)\n"
            #expect(admin.metricsText.contains(line))
        }
        #expect(ask("/ready", of: admin).status == 200)
    }

    @Test("screen, page and JSON show the machine and each route's destination")
    func routes() throws {
        let test = try GatewayUnderTest(.http(base: "http://127.0.0.1:9/<base>"))
        let status = Status(of: Admin.of(test.gateway))
        let host = HostName.current
        #expect(!host.isEmpty)
        #expect(status.text.contains(", on \(host), up "))
        #expect(status.text.contains("\nRoutes (1)\n  default  http://127.0.0.1:9/<base>\n"))
        #expect(status.html.contains("<title>OK: spoolgate on \(host)</title>"))
        #expect(status.html.contains("<h1>spoolgate on \(host)</h1>"))
        #expect(status.html.contains("<b>default</b><code>http://127.0.0.1:9/&lt;base&gt;</code>"))
        let json = status.json.text
        #expect(json.contains("\"host\":\"\(host)\""))
        #expect(
            json.contains("\"routes\":[{\"v\":1,\"route\"")
                || json.contains(
                    "\"routes\":[{\"route\":\"default\",\"upstream\":[\"http://127.0.0.1:9/<base>\"]}]"
                ),
            "\(json)"
        )
    }

    @Test("an upstream that is down and refused settings leave it ready")
    func others() throws {
        let test = try GatewayUnderTest(.http(base: "http://127.0.0.1:9"))
        #expect(test.serve(.creation(method: .put)).status == 502)
        test.gateway.metrics.refusedReload.set(1)
        let admin = Admin.of(test.gateway)
        #expect(ask("/ready", of: admin).status == 200)
        #expect(Status(of: admin).level == .warning)
        #expect(admin.metricsText.contains("spoolgate_settings_last_reload_success 0"))
    }

    // MARK: The status

    @Test("text from a client or upstream is escaped in the page, the screen and the JSON")
    func escaping() throws {
        let evil = "<script>alert('x')</script>&\"\u{1b}[31m\u{202e}"
        let gate = test.gateway
        let running = try test.start(
            .creation(
                ["hello", .stuck],
                length: .known(10),
                context: ExchangeContext(
                    owner: ExactText(evil),
                    interimStatuses: [104],
                    remoteAddress: "\(evil)"
                )
            )
        )
        try eventually("the upload is received") { gate.transfers.all.first?.offset == 5 }
        gate.metrics.failures.note(.random(), route: "default", reason: evil)
        for target in ["/", "/status", "/status.txt"] {
            let text = ask(target).text
            #expect(!text.unicodeScalars.contains { "\u{1b}\u{202e}".unicodeScalars.contains($0) })
            if target == "/" {
                #expect(text.ranges(of: "<script").count == 1, "only the page's own script")
                #expect(text.contains("<script src=\"page.js\" defer></script>"))
                #expect(!text.contains("'x'"))
                #expect(text.contains("&lt;script&gt;alert(&#39;x&#39;)"))
            }
        }
        test.spool.requestReleaseOfAll()
        _ = try running.finish()
    }

    @Test(
        "a running upload is shown with its length, rate and connections, and later removed"
    )
    func now() throws {
        let cut = test.serve(
            .creation([.bytesThenFails(Array("hello".utf8), .truncated)], length: .known(20))
        )
        let location = try #require(cut.location)
        let append = ScriptedExchange.append(
            location,
            at: 5,
            [" world", .stuck],
            length: .known(15)
        )
        let running = try test.start(append)
        try eventually("it is received") { test.gateway.transfers.all.first?.offset == 11 }
        let status = Status(of: Admin.of(test.gateway))
        #expect(status.receiving == 1)
        #expect(status.transfers.first.first?.connections == 2)
        #expect(status.transfers.first.first?.percent == 55)
        #expect(status.text.contains("11 bytes of 20 bytes"))
        #expect(status.json.text.contains("\"v\":1"))
        test.spool.requestReleaseOfAll()
        _ = try running.finish()
        #expect(Status(of: Admin.of(test.gateway)).transfers.count == 0)
    }

    @Test("an upload is shown with its path, and with its file's name if that differs")
    func names() throws {
        for (target, name, isShown) in [
            ("/a/film.mp4?x=1", "film.mp4", false), ("/a/", "<film>.mp4", true),
        ] {
            let running = try test.start(
                .creation(
                    ["hello", .stuck],
                    length: .known(20),
                    target: target,
                    fields: [.contentDisposition: "attachment; filename=\"\(name)\""]
                )
            )
            try eventually("it is received") { test.gateway.transfers.all.first?.offset == 5 }
            let html = Status(of: Admin.of(test.gateway)).html
            let path = target.prefix { $0 != "?" }
            #expect(html.contains("<bdi>\(path)</bdi>"))
            #expect(html.contains("<bdi class=\"file\">\(HTML.text(name))</bdi>") == isShown)
            test.spool.requestReleaseOfAll()
            _ = try running.finish()
        }
    }

    @Test("partial uploads without a request are shown, most recently changed first")
    func partial() throws {
        let admin = Admin.of(test.gateway)
        func look() -> Status {
            admin.sampler.lookForPartial(isThere: true)
            return Status(of: admin)
        }
        let locations = try ["/a/one", "/a/<two>"].map { target in
            try #require(
                test.serve(
                    .creation(
                        [.bytesThenFails(Array("hello".utf8), .truncated)],
                        length: .known(20),
                        target: target
                    )
                ).location
            )
        }
        let ids = locations.map { String($0.split(separator: "/").last ?? "") }
        try test.age(locations[0], by: 300)
        #expect(Status(of: admin).partial.first.isEmpty)
        #expect(
            Status(of: admin).text.contains("\n  2 partial uploads are waiting for their clients: ")
        )
        let status = look()
        #expect(status.partial.count == 2)
        #expect(status.partial.first.map(\.id.description) == [ids[1], ids[0]])
        #expect(status.html.contains("<bdi>/a/&lt;two&gt;</bdi>"))
        #expect(status.html.contains("5 bytes of 20 bytes · idle for 5m"))
        #expect(status.text.contains("5 bytes of 20 bytes  idle for 5m"))
        #expect(
            status.json.text.contains(
                "\"partial\":2,\"partial-uploads\":[{\"upload\":\"\(ids[1])\""
            )
        )

        let running = try test.start(
            .append(locations[1], at: 5, [" world", .stuck], length: .known(15))
        )
        try eventually("it is received") { test.gateway.transfers.all.first?.offset == 11 }
        #expect(Status(of: admin).partial.first.map(\.id.description) == [ids[0]])
        #expect(look().partial.first.map(\.id.description) == [ids[0]])
        // Running uploads are not counted towards the limit.
        #expect(try test.spool.newestPartial(maximum: 1).map(\.id.description) == [ids[0]])
        test.spool.requestReleaseOfAll()
        _ = try running.finish()
    }

    @Test("the page lists first uploads that need a person, then active ones")
    func order() throws {
        let html = Status(of: Admin.of(test.gateway)).html
        let parts = html.split(separator: "<h2>").dropFirst().map { $0.prefix { $0 != "<" } }
        #expect(
            parts
                == ["Needs attention ", "Now ", "Waiting ", "Last failures ", "Routes ", "Space"]
        )
    }

    @Test(
        "sizes for people go by powers of 1000",
        arguments: [
            (1, "1 byte"), (999, "999 bytes"), (1_000, "1.0 kB"), (99_940, "99.9 kB"),
            (99_960, "100 kB"), (999_600, "1.0 MB"), (1 << 30, "1.1 GB"), (.max, "9223372 TB"),
        ] as [(Int64, String)]
    )
    func sizes(bytes: Int64, text: String) {
        #expect(ByteSize.decimal(bytes) == text)
    }

    @Test("a running ordinary upload is counted with the named ones")
    func ordinary() throws {
        let seen = Monitor<Status?>(nil)
        let gateway = test.gateway
        let exchange = ScriptedExchange(
            .put,
            "/a",
            [:],
            ["hello", .happens { seen.update { $0 = Status(of: Admin.of(gateway)) } }]
        )
        #expect(test.serve(exchange).status == 201)
        let status = try #require(seen.update { $0 })
        #expect(status.text.hasPrefix("OK: 1 receiving"))
        #expect(status.text.contains("\nNow (1)\n  1 ordinary upload\n"))
        #expect(status.html.contains("<h2>Now <span>1</span></h2>"))
        #expect(status.html.contains("1 ordinary upload</p>"))
        #expect(!status.html.contains("No uploads are being received."))
        #expect(status.json.text.contains("\"receiving\":1,\"ordinary\":1,"))
        let later = Status(of: Admin.of(gateway))
        #expect(later.receiving == 0 && later.ordinary == 0)
        #expect(!later.text.contains("ordinary"))
    }

    @Test(
        "until the spool has been read it reports counting; after a crash that is a warning"
    )
    func counting() throws {
        let file = "\(test.root)/spool/daemons/dead"
        #expect(FileManager.default.createFile(atPath: file, contents: nil))
        try test.spool.enter()
        let admin = Admin.of(test.gateway)
        let before = Status(of: admin)
        #expect(before.level == .warning)
        #expect(
            before.text.hasPrefix(
                "WARNING: 0 receiving, 0 waiting, 0 need attention, still counting; "
                    + "a daemon crashed; its uploads are being counted\n"
            )
        )
        #expect(before.json.text.contains("\"counting\":true"))
        try test.gateway.deliveries.startQueue()
        try eventually("all is counted") { !Status(of: admin).isCounting }
        let after = Status(of: admin)
        #expect(after.level == .ok)
        #expect(!after.line.contains("counting"))
        #expect(after.json.text.contains("\"counting\":false"))
    }

    @Test("an upload held by an operator is no concern, and has its own section")
    func held() throws {
        let test = try GatewayUnderTest(.http(base: "http://127.0.0.1:9"))
        let location = try #require(test.serve(.creation(method: .put)).location)
        let id = try test.id(location)
        let upload = try #require(try test.spool.tryLock(id))
        try upload.hold(.held, reason: "wait")
        upload.unlock()
        try test.gateway.metrics.waiting.look(at: test.spool)
        let status = Status(of: Admin.of(test.gateway))
        #expect(status.level == .ok)
        #expect(status.needy.count == 0)
        #expect(status.held.first.map(\.id) == [id])
        #expect(status.line.hasPrefix("0 receiving, 0 waiting, 0 need attention, 1 held"))
        #expect(!status.text.contains("Needs attention"))
        #expect(status.text.contains("\nHeld (1)\n"))
        #expect(status.text.contains("\n    to release it: spoolgate release \(id)\n"))
        #expect(status.html.contains("<h2>Needs attention <span>0</span></h2>"))
        #expect(status.html.contains("<h2>Held <span>1</span></h2>"))
        let json = status.json.text
        #expect(json.contains("\"needing-attention\":0,\"needs-attention\":[],\"held\":1,"))
        #expect(json.contains("\"on-hold\":[{"))
    }

    @Test("an upload of unknown outcome needs a person, with advice what to check and type")
    func needsAttention() throws {
        let slow = try SlowUpstream(then: "")
        let test = try GatewayUnderTest(slow.target)
        let (running, location) = try test.startDelivery(to: slow)
        slow.gate.open()
        #expect(try running.finish().status == 502)
        let status = Status(of: Admin.of(test.gateway))
        let id = try test.id(location)
        #expect(status.level == .warning)
        #expect(status.concerns == ["1 needs attention"])
        #expect(status.needy.first.map(\.id) == [id])
        #expect(status.held.count == 0)
        #expect(status.text.hasPrefix("WARNING: 0 receiving, 0 waiting, 1 needs attention"))
        #expect(
            status.text.contains(
                """

                  indeterminate: check whether the upstream has the upload
                    to inspect it: spoolgate show \(id)
                    if it does not: spoolgate requeue \(id)
                    if it does: spoolgate purge --force \(id)

                """
            )
        )
        #expect(status.html.contains("if it does not: <kbd>spoolgate requeue \(id)</kbd>"))
        #expect(status.failures.map(\.id) == [id])
    }

    @Test("the last twenty failures are kept, newest first")
    func failures() {
        for number in 1...25 {
            test.gateway.metrics.failures.note(.random(), route: "default", reason: "\(number)")
        }
        let kept = Status(of: Admin.of(test.gateway)).failures.map(\.reason)
        #expect(kept == (6...25).reversed().map(String.init))
    }

    @Test("a web server fault is a concern for a quarter of an hour")
    func fault() {
        test.serve(ScriptedExchange(.put, "/a", context: ExchangeContext(route: "nowhere")))
        let status = Status(of: Admin.of(test.gateway))
        #expect(status.faults == [.unknownRoute])
        #expect(status.level == .warning)
    }

    @Test("the last purge time is stored in the spool, for the next process too")
    func purged() throws {
        #expect(test.spool.lastPurge == nil)
        test.gateway.deliveries.removeOld(in: Retention.queues)
        let time = try #require(try Spool(existing: "\(test.root)/spool").lastPurge)
        #expect(abs(time.seconds - WallTime.now.seconds) < 60)
        let admin = Admin.of(test.gateway)
        try admin.start()
        #expect(
            admin.metricsText.contains(
                "spoolgate_purge_last_success_timestamp_seconds \(time.seconds)\n"
            )
        )
    }
}
