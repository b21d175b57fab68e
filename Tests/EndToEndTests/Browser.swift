// A browser with one of three engines, driven by W3C WebDriver, whose temporary profile accepts every certificate.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

final class Browser {
    let engine: Engine
    /// The home, with the profile and the log.
    let directory: URL
    private let driver: any BrowserDriver

    struct Setup {
        /// Whether storage is blocked (not in WebKit).
        var blocksStorage = false
        /// Whether scripts are enabled (only Chromium).
        var runsScripts = true
        var acceptsAnyCertificate = true
        var isDark = false
    }

    init(_ engine: Engine = .chromium, _ setup: Setup = Setup()) throws {
        self.engine = engine
        directory = FileManager.default.temporaryDirectory
            .appending(path: "browser-\(UUID().uuidString.prefix(8))")
        do {
            try FileManager.default.createDirectory(
                at: directory,
                withIntermediateDirectories: true,
                attributes: [.posixPermissions: 0o700]
            )
            switch engine {
            case .chromium: driver = try Self.chromium(setup, in: directory)
            case .firefox: driver = try Self.firefox(setup, in: directory)
            case .webkit: driver = try Self.webkit(setup, in: directory)
            }
        } catch {
            Self.remove(directory)
            throw error
        }
        _ = try driver.perform(.setTimeouts, ["script": 300_000])
    }

    deinit {
        driver.end()
        Self.remove(directory)
    }

    /// The browser's processes, whose `HOME` is this directory.
    static func processes(of directory: URL) -> [Int32] {
        let mark = "HOME=\(directory.path())\0"
        let entries = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
        return entries.compactMap { Int32($0) }.filter {
            let variables = try? TextFile.read("/proc/\($0)/environ", limit: 16 << 20)
            return variables?.contains(mark) == true
        }
    }

    private static func remove(_ directory: URL) {
        _ = try? eventually("the browser's processes end", seconds: 20) { () -> Bool in
            let left = processes(of: directory)
            for process in left { kill(process, SIGKILL) }
            return left.isEmpty
        }
        try? FileManager.default.removeItem(at: directory)
    }

    /// Keeps temporary files in `directory`, so that they are removed with it.
    private static func environment(_ directory: URL) -> [String: String] {
        let path = directory.path()
        return ["TMPDIR": path, "HOME": path, "XDG_RUNTIME_DIR": path, "NO_AT_BRIDGE": "1"]
    }

    private static func chromium(_ setup: Setup, in directory: URL) throws -> any BrowserDriver {
        var arguments = ["--headless=new", "--disable-dev-shm-usage", "--disable-gpu"]
        if setup.isDark { arguments.append("--force-dark-mode") }
        // Chromium's own sandbox does not run as root.
        if getuid() == 0 { arguments.append("--no-sandbox") }
        var options: [String: Any] = ["args": arguments]
        var refused: [String: Any] = [:]
        if setup.blocksStorage { refused["profile.default_content_setting_values.cookies"] = 2 }
        if !setup.runsScripts { refused["profile.default_content_setting_values.javascript"] = 2 }
        if !refused.isEmpty { options["prefs"] = refused }
        return try HTTPDriver(
            Command.find("chromedriver") ?? "chromedriver",
            capabilities: [
                "browserName": "chrome", "acceptInsecureCerts": setup.acceptsAnyCertificate,
                "goog:loggingPrefs": ["browser": "ALL"],
                "goog:chromeOptions": options,
            ],
            environment: environment(directory),
            log: directory.appending(path: "log")
        )
    }

    private static func firefox(_ setup: Setup, in directory: URL) throws -> any BrowserDriver {
        var preferences = [
            "layout.css.prefers-color-scheme.content-override": setup.isDark ? "0" : "1"
        ]
        if setup.blocksStorage { preferences["network.cookie.cookieBehavior"] = "2" }
        return try MarionetteDriver(
            in: directory,
            preferences: preferences,
            environment: environment(directory),
            acceptsAnyCertificate: setup.acceptsAnyCertificate
        )
    }

    /// Starts WebKit on an X server, because its browser has no headless mode.
    private static func webkit(_ setup: Setup, in directory: URL) throws -> any BrowserDriver {
        let number = directory.appending(path: "display")
        let display = try Daemon(
            Command.find("Xvfb") ?? "Xvfb",
            ["-displayfd", "1", "-screen", "0", "1600x1200x24", "-nolisten", "tcp"],
            log: number,
            environment: environment(directory)
        )
        let name: Int = try eventually("Xvfb has a display", seconds: 60) {
            if !display.process.isRunning { throw NeverHappened(description: "Xvfb ended") }
            let text = (try? String(contentsOf: number, encoding: .utf8)) ?? ""
            return text.split(separator: "\n").compactMap { Int($0) }.first
        }
        let driver = try HTTPDriver(
            Command.find("WebKitWebDriver") ?? "WebKitWebDriver",
            capabilities: [
                "browserName": "MiniBrowser", "acceptInsecureCerts": setup.acceptsAnyCertificate,
                "webkitgtk:browserOptions": [
                    "binary": Engine.miniBrowser ?? "MiniBrowser", "args": ["--automation"],
                ],
            ],
            environment: environment(directory).merging([
                "DISPLAY": ":\(name)", "GTK_THEME": setup.isDark ? "Adwaita:dark" : "Adwaita",
            ]) { $1 },
            log: directory.appending(path: "log")
        )
        return DisplayedDriver(driver: driver, display: display)
    }

    @discardableResult
    private func command(_ command: BrowserCommand, _ body: [String: Any] = [:]) throws -> Any {
        try driver.perform(command, body)
    }

    func open(_ url: String) throws { try command(.navigate, ["url": url]) }

    func reload() throws { try command(.refresh) }

    func back() throws { try command(.back) }

    func openWindow() throws {
        let made = try command(.newWindow, ["type": "window"]) as? [String: Any]
        let handle = made?["handle"] as? String ?? ""
        try command(.switchToWindow, ["handle": handle])
    }

    /// Switches to a frame's document and waits until it is loaded.
    func enterFrame(_ selector: String) throws {
        let name = "element-6066-11e4-a52e-4f735466cecf"
        try command(.switchToFrame, ["id": [name: element(selector)]])
        try eventually("the frame is loaded") {
            try text("return location.protocol + document.readyState") == "http:complete"
        }
    }

    @discardableResult
    func run(_ script: String, _ arguments: Any...) throws -> Any {
        try command(.execute, ["script": script, "args": arguments])
    }

    func text(_ script: String, _ arguments: String...) throws -> String {
        try command(.execute, ["script": script, "args": arguments]) as? String ?? ""
    }

    private func element(_ selector: String) throws -> String {
        let found = try command(.findElement, ["using": "css selector", "value": selector])
        return (found as? [String: String])?.values.first ?? ""
    }

    /// Clicks as a user does: not on a hidden or covered element.
    func click(_ selector: String) throws { try command(.click(element(selector))) }

    func press(_ key: String) throws {
        let actions = ["keyDown", "keyUp"].map { ["type": $0, "value": key] }
        let keyboard: [String: Any] = ["type": "key", "id": "keys", "actions": actions]
        try command(.actions, ["actions": [keyboard]])
    }

    func choose(_ files: [URL], in selector: String) throws {
        let paths = files.map { $0.path(percentEncoded: false) }
        try command(.sendKeys(element(selector)), ["text": paths.joined(separator: "\n")])
    }

    /// Drops files from outside the browser on an element (only Chromium).
    func drop(_ files: [URL], on selector: String) throws {
        let middle =
            try run(
                """
                const { x, y, width, height } = document.querySelector(arguments[0]).getBoundingClientRect()
                return [x + width / 2, y + height / 2]
                """,
                selector
            ) as? [Double] ?? []
        let data: [String: Any] = [
            "items": [], "files": files.map { $0.path(percentEncoded: false) },
            "dragOperationsMask": 1,
        ]
        for type in ["dragEnter", "dragOver", "drop"] {
            let event: [String: Any] = ["type": type, "x": middle[0], "y": middle[1], "data": data]
            try devTools("Input.dispatchDragEvent", event)
        }
    }

    /// The consoles' messages since the last call; Chromium's include network errors, and WebKit's driver reports none.
    func console() throws -> [String] {
        if let driver = driver as? MarionetteDriver {
            let script = """
                const all = Services.console.getMessageArray()
                Services.console.reset()
                return all.filter((m) => m instanceof Ci.nsIScriptError && /^http/.test(m.sourceName))
                    .map((m) => m.errorMessage)
                """
            return try driver.asBrowser { try run(script) } as? [String] ?? []
        }
        guard engine == .chromium else { return [] }
        let lines = try command(.vendor("/se/log"), ["type": "browser"]) as? [[String: Any]] ?? []
        return lines.compactMap { $0["message"] as? String }
    }

    /// Trusts a certificate authority (PEM), as a user who imports it (only Firefox).
    func trust(_ certificate: String) throws {
        let content = certificate.split(separator: "\n").filter { !$0.hasPrefix("-----") }.joined()
        let script = """
            Cc['@mozilla.org/security/x509certdb;1'].getService(Ci.nsIX509CertDB)
                .addCertFromBase64(arguments[0], 'C,,')
            """
        let driver = driver as? MarionetteDriver
        try driver?.asBrowser { _ = try run(script, content) }
    }

    private func devTools(_ name: String, _ parameters: [String: Any]) throws {
        try command(.vendor("/goog/cdp/execute"), ["cmd": name, "params": parameters])
    }

    /// Sets the page's size in CSS pixels, which may be narrower than any window.
    func resize(width: Int, height: Int) throws {
        switch engine {
        case .chromium:
            let size: [String: Any] = [
                "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
            ]
            try devTools("Emulation.setDeviceMetricsOverride", size)
        case .firefox:
            try command(.setWindowRect, ["width": max(width, 600), "height": height + 100])
            let driver = driver as? MarionetteDriver
            try driver?.asBrowser {
                let script =
                    "const { style } = gBrowser.selectedBrowser; style.minWidth = style.maxWidth = arguments[0]"
                _ = try run(script, "\(width)px")
            }
        case .webkit: try command(.setWindowRect, ["width": width, "height": height])
        }
        try eventually("the page is \(width) pixels wide") {
            try run("return innerWidth") as? Int == width
        }
    }

    /// Emulates the choice of forced colors (only Chromium).
    func forceColors(_ isForced: Bool) throws {
        let features = [["name": "forced-colors", "value": isForced ? "active" : "none"]]
        try devTools("Emulation.setEmulatedMedia", ["features": features])
    }

    func screenshot() throws -> Data {
        let text = try command(.screenshot) as? String ?? ""
        guard let data = Data(base64Encoded: text), !data.isEmpty else {
            throw WireClient.Broken(description: "no screenshot")
        }
        return data
    }
}

private final class DisplayedDriver: BrowserDriver {
    private let driver: any BrowserDriver
    private let display: Daemon

    init(driver: any BrowserDriver, display: Daemon) {
        (self.driver, self.display) = (driver, display)
    }

    func perform(_ command: BrowserCommand, _ body: [String: Any]) throws -> Any {
        try driver.perform(command, body)
    }

    func end() {
        driver.end()
        display.signal(SIGKILL)
        _ = display.wait()
    }
}

/// One browser of each engine for all tests of a serialized suite, each of which opens a page of another origin.
struct SharedBrowser: SuiteTrait, TestScoping {
    private final class Started: @unchecked Sendable {
        // The suite's tests run one at a time.
        var browsers: [Engine: Browser] = [:]
    }

    @TaskLocal private static var started: Started?

    func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing function: @Sendable () async throws -> Void
    ) async throws {
        try await Self.$started.withValue(Started()) { try await function() }
    }

    /// The suite's browser, with an empty console; its first test starts it.
    static func take(_ engine: Engine = .chromium) throws -> Browser {
        let started = try #require(started)
        if let browser = started.browsers[engine] {
            _ = try browser.console()
            return browser
        }
        let browser = try Browser(engine)
        started.browsers[engine] = browser
        return browser
    }
}

extension Trait where Self == SharedBrowser {
    static var sharedBrowser: Self { Self() }
}
