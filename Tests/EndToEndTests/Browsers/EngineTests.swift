// The shipped page in each engine: user actions, and the bytes that reach an application behind nginx.

import Foundation
import SpoolgateTestSupport
import Testing

private struct Stage {
    let application: LoopbackOrigin
    let page: PageUnderTest
    let file: (url: URL, bytes: Data)

    static let name = "photo.raw"
    static let length = 4_000_000

    init(_ application: LoopbackOrigin, _ page: PageUnderTest) throws {
        (self.application, self.page) = (application, page)
        file = try page.sandbox.randomFile(Self.length, Self.name)
    }

    init(_ engine: Engine, _ setup: Browser.Setup? = nil, isSecure: Bool = false) throws {
        let application = try EngineTests.application()
        let page = try PageUnderTest(
            engine,
            setup,
            upstream: application.base,
            isSecure: isSecure,
            front: .nginxWithPages
        )
        try self.init(application, page)
    }

    func choose(holdingAt bytes: Int? = nil) throws {
        if let bytes { page.network.hold(at: bytes) }
        try page.choose(file.url)
    }

    func expectDelivered() throws {
        try page.awaitOutcome(Self.name)
        let words = try page.words(Self.name)
        #expect(try page.state(Self.name) == "done", "\(words)")
        #expect(application.requests.map { Data($0.content) } == [file.bytes])
    }
}

@Suite("The page in three engines", .serialized, .sharedBrowser)
struct EngineTests {
    private static let half = 2_000_000
    /// The installed ones, or in a portion one of them.
    static let engines: [Engine] = {
        let installed = Engine.allCases.filter(\.isInstalled)
        return Portion.ofThisRun.taken(from: installed, of: max(1, installed.count))
    }()

    fileprivate static func application() throws -> LoopbackOrigin {
        try LoopbackOrigin(status: "201 Created")
    }

    /// Checks that a browser leaves no process and no file.
    private static func isGone(_ engine: Engine) throws {
        var directory = URL(filePath: "/")
        do {
            let browser = try Browser(engine)
            try browser.open("about:blank")
            directory = browser.directory
            #expect(Browser.processes(of: directory).count > 1)
        }
        #expect(Browser.processes(of: directory) == [])
        #expect(!FileManager.default.fileExists(atPath: directory.path()))
    }

    @Test(
        "Chromium ends with its test",
        .enabled(if: Engine.chromium.isInstalled, Engine.chromium.missing)
    )
    func chromium() throws { try Self.isGone(.chromium) }

    @Test(
        "Firefox ends with its test",
        .enabled(if: Engine.firefox.isInstalled, Engine.firefox.missing)
    )
    func firefox() throws { try Self.isGone(.firefox) }

    @Test(
        "WebKit ends with its test",
        .enabled(if: Engine.webkit.isInstalled, Engine.webkit.missing)
    )
    func webkit() throws { try Self.isGone(.webkit) }

    @Test(
        "a file arrives byte for byte, over HTTP/1.1 and HTTP/2",
        arguments: engines,
        [false, true]
    )
    func uploads(engine: Engine, isSecure: Bool) throws {
        let stage = try Stage(engine, isSecure: isSecure)
        try stage.choose()
        try stage.expectDelivered()
        #expect(try stage.page.creations(over: isSecure ? "HTTP/2.0" : "HTTP/1.1") == 1)
        #expect(try stage.page.violations() == 0)
    }

    @Test(
        "after a reload during the upload the same file continues, and nothing is sent twice",
        arguments: engines
    )
    func reloaded(engine: Engine) throws {
        let stage = try Stage(engine)
        let page = stage.page
        try stage.choose(holdingAt: Self.half)
        try page.awaitReceived(Stage.name, atLeast: Self.half * 9 / 10)
        try page.browser.reload()
        // WebKit reports the page as loaded before its script has run.
        try eventually("the page asks for the file again") {
            try page.unfinished() == [Stage.name]
        }
        // Otherwise bytes in the system's buffers would arrive although the page is gone.
        page.network.cut()
        page.network.hold(at: nil)
        page.network.restore()
        let offset = try page.sandbox.spooledOffset()
        let passed = page.network.passed
        #expect(offset >= Self.half * 9 / 10)
        try stage.choose()
        try stage.expectDelivered()
        #expect(try page.creations() == 1)
        // The allowance is for some requests' header sections.
        let sent = page.network.passed - passed
        #expect(sent < Stage.length - offset + 100_000, "\((try? page.history()) ?? "")")
    }

    /// Makes `away` wait in real time, about two minutes for each engine: `SPOOLGATE_REAL_CLOCK=1 swift test --filter
    /// EngineTests`.
    private static let hasRealClock =
        ProcessInfo.processInfo.environment["SPOOLGATE_REAL_CLOCK"] != nil

    /// Runs the page's clock and timers faster by a factor.
    private static let hasten = """
        const rate = arguments[0], { setTimeout, setInterval } = window
        window.setTimeout = (body, delay, ...rest) => setTimeout.call(window, body, (delay ?? 0) / rate, ...rest)
        window.setInterval = (body, delay, ...rest) => setInterval.call(window, body, (delay ?? 0) / rate, ...rest)
        for (const clock of [window.Date, window.performance]) {
            const now = clock.now.bind(clock), start = now()
            clock.now = () => start + (now() - start) * rate
        }
        """

    // Long because the page pauses for seconds between attempts.
    @Test(
        "an upload continues after its server was away for 90 seconds and more",
        arguments: engines
    )
    func away(engine: Engine) throws {
        let stage = try Stage(engine)
        let page = stage.page
        let rate = Self.hasRealClock ? 1 : 20
        try page.browser.run(Self.hasten, rate)
        try stage.choose(holdingAt: Self.half)
        try page.awaitReceived(Stage.name)
        page.network.cut()
        func time() throws -> Double {
            (try page.browser.run("return window.Date.now()") as? NSNumber)?.doubleValue ?? 0
        }
        let start = try time()
        // A client that gives up after 70 seconds has made its last attempt.
        try eventually("the page's clock advances by 100 seconds") { try time() >= start + 100_000 }
        #expect(page.network.refused >= 3)
        page.network.hold(at: nil)
        page.network.restore()
        try stage.expectDelivered()
        #expect(try page.creations() == 1)
    }

    @Test(
        "in a sandboxed frame, without storage and locks, a file is uploaded",
        arguments: engines
    )
    func sandboxed(engine: Engine) throws {
        let application = try Self.application()
        let pages = try PageServer()
        let sandbox = try Sandbox(
            upstream: application.base,
            routeSettings: ["cors: {origins: [\"*\"]}"],
            front: .nginxWithPages
        )
        pages.upload(to: "http://localhost:\(sandbox.port)")
        let network = try CuttingProxy(to: sandbox.port)
        let browser = try SharedBrowser.take(engine)
        let page = PageUnderTest(sandbox: sandbox, network: network, browser: browser)
        try page.browser.open(pages.origin + "/framed")
        try page.browser.enterFrame("iframe")
        try Self.uploadsWithoutStorage(Stage(application, page))
    }

    @Test(
        "if the user blocks cookies, and so storage, a file is uploaded",
        arguments: engines.filter { $0 != .webkit }
    )
    func blocked(engine: Engine) throws {
        var setup = Browser.Setup()
        setup.blocksStorage = true
        try Self.uploadsWithoutStorage(Stage(engine, setup))
    }

    private static func uploadsWithoutStorage(_ stage: Stage) throws {
        let script = "try { return String(localStorage) } catch (error) { return error.name }"
        #expect(
            try stage.page.browser.text(script) == "SecurityError",
            "storage is not blocked"
        )
        try stage.choose()
        try stage.expectDelivered()
    }

    @Test("an upload whose gateway is killed continues with the next gateway", arguments: engines)
    func killed(engine: Engine) throws {
        let stage = try Stage(engine)
        let page = stage.page
        try stage.choose(holdingAt: Self.half)
        try page.awaitReceived(Stage.name, atLeast: Self.half / 2)
        page.sandbox.kill()
        page.network.hold(at: nil)
        try page.awaitState(Stage.name, "waiting")
        try page.sandbox.startAgain()
        try stage.expectDelivered()
        #expect(try page.creations() == 1)
    }

    // Long because each row starts a browser, which sends thirty files.
    @Test(
        "thirty files chosen at once all arrive, including empty and large ones",
        arguments: engines
    )
    func many(engine: Engine) throws {
        let application = try Self.application()
        let page = try PageUnderTest(engine, upstream: application.base, front: .nginxWithPages)
        let files = try (0..<30).map { number in
            let size = number % 7 == 3 ? 0 : number % 10 == 5 ? 20_000_000 : number * 4_000 + 1
            return try page.sandbox.randomFile(size, "\(number).bin")
        }
        try page.choose(files.map(\.url))
        for file in files { try page.awaitState(file.url.lastPathComponent, "done") }
        let arrived = application.requests.map { request in
            let told = request.values("Content-Disposition").first ?? ""
            return (
                told.replacing("attachment; filename*=UTF-8''", with: ""), Data(request.content)
            )
        }
        #expect(arrived.count == files.count)
        let contents = Dictionary(arrived) { first, _ in first }
        for file in files {
            let name = file.url.lastPathComponent
            #expect(contents[name] == file.bytes, "\(name)")
        }
    }

    @Test("the page violates no rule of its policy, default-src 'self'", arguments: engines)
    func policy(engine: Engine) throws {
        let application = try LoopbackOrigin(status: "422 Unprocessable Content", content: "no")
        let page = try PageUnderTest(engine, upstream: application.base, front: .nginxWithPages)
        let file = try page.sandbox.randomFile(300_000, "photo.raw")
        page.network.hold(at: 100_000)
        try page.choose(file.url)
        try page.awaitReceived("photo.raw")
        try page.press("Pause", "photo.raw")
        try page.awaitState("photo.raw", "paused")
        page.network.hold(at: nil)
        try page.press("Resume", "photo.raw")
        try page.awaitState("photo.raw", "failed")
        func complaints() throws -> [String] {
            try page.browser.console().filter {
                $0.contains("Content Security Policy") || $0.contains("Content-Security-Policy")
            }
        }
        #expect(try complaints() == [])
        // The test's own violation proves that violations are reported.
        try page.browser.run("new Image().src = 'http://127.0.0.1:1/other.png'")
        try eventually("the browser reports the violation") { try page.violations() > 0 }
        #expect(try page.violations() == 1)
        if engine != .webkit { #expect(try complaints().count == 1) }
    }
}
