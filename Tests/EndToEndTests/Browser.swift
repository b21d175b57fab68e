// A headless Chromium, driven as the WebDriver recommendation of the W3C says, by JSON over HTTP.
//
// It has a profile of its own in a temporary directory, trusts every certificate, and is gone with the test.

import Foundation
import SpoolgateTestSupport
import Testing

/// A browser with one window, and more if a test opens them.
final class Browser {
    /// Whether a test can have one; it says in its skip message what is missing.
    static let isInstalled = Command.find("chromedriver") != nil
    static let missing: Comment = "chromedriver is not installed: apt-get install chromium-driver"

    private let directory: URL
    private let port: Int
    private let driver: Daemon
    private var session = ""

    /// Starts it.
    ///
    /// - Parameter detours: `HOST:PORT` as pages know it, and the port of 127.0.0.1 that is connected to
    ///   instead.
    /// - Throws: `NeverHappened` or `Broken` where it does not start.
    init(detours: [String: Int] = [:]) throws {
        directory = FileManager.default.temporaryDirectory
            .appending(path: "browser-\(UUID().uuidString.prefix(8))")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        port = try FreePort.take(1)[0]
        driver = try Daemon(
            Command.find("chromedriver") ?? "chromedriver",
            ["--port=\(port)"],
            log: directory.appending(path: "log"),
            // What the browser leaves in the directory for temporary files goes with the test.
            environment: ["TMPDIR": directory.path(), "HOME": directory.path()]
        )
        let port = port
        try eventually("chromedriver listens") { (try? WireClient(port: port)) != nil }
        let rules = detours.map { "MAP \($0.key) 127.0.0.1:\($0.value)" }.joined(separator: ", ")
        var arguments = ["--headless=new", "--disable-dev-shm-usage", "--disable-gpu"]
        if !rules.isEmpty { arguments.append("--host-resolver-rules=\(rules)") }
        // Chromium's own sandbox is not for root.
        if getuid() == 0 { arguments.append("--no-sandbox") }
        let capabilities: [String: Any] = [
            "browserName": "chrome", "acceptInsecureCerts": true,
            "goog:loggingPrefs": ["browser": "ALL"],
            "goog:chromeOptions": ["args": arguments],
        ]
        let made = try call(
            "POST",
            "/session",
            ["capabilities": ["alwaysMatch": capabilities]]
        )
        session = (made as? [String: Any])?["sessionId"] as? String ?? ""
    }

    deinit {
        // Chromium ends with its session. Foundation starts programs with most signals blocked, and
        // chromedriver leaves that so.
        if !session.isEmpty { _ = try? call("DELETE", "/session/\(session)") }
        driver.signal(SIGKILL)
        _ = driver.wait()
        try? FileManager.default.removeItem(at: directory)
    }

    private func call(_ method: String, _ path: String, _ body: [String: Any]? = nil) throws -> Any
    {
        let client = try WireClient(to: .port(UInt16(port)), patience: 300)
        let content = try body.map { try JSONSerialization.data(withJSONObject: $0) }
        let answer = try client.ask(
            method,
            path,
            ["Content-Type: application/json; charset=utf-8"],
            content: content
        )
        let object = try JSONSerialization.jsonObject(with: answer.content) as? [String: Any]
        guard answer.status == 200, let value = object?["value"] else {
            throw WireClient.Broken(description: "\(method) \(path): \(answer.text.prefix(500))")
        }
        return value
    }

    @discardableResult
    private func command(_ path: String, _ body: [String: Any] = [:]) throws -> Any {
        try call("POST", "/session/\(session)\(path)", body)
    }

    /// Opens a page and waits until it is loaded.
    func open(_ url: String) throws { try command("/url", ["url": url]) }

    /// Loads the page again.
    func reload() throws { try command("/refresh") }

    /// Opens a further window, and turns to it.
    func openWindow() throws {
        let made = try command("/window/new", ["type": "window"]) as? [String: Any]
        try command("/window", ["handle": made?["handle"] as? String ?? ""])
    }

    /// What a script in the page returns.
    @discardableResult
    func run(_ script: String, _ arguments: Any...) throws -> Any {
        try command("/execute/sync", ["script": script, "args": arguments])
    }

    /// A text that a script in the page returns.
    func text(_ script: String, _ arguments: String...) throws -> String {
        try command("/execute/sync", ["script": script, "args": arguments]) as? String ?? ""
    }

    private func element(_ selector: String) throws -> String {
        let found = try command("/element", ["using": "css selector", "value": selector])
        return (found as? [String: String])?.values.first ?? ""
    }

    /// Clicks as a person does: what is not to be seen, or covered, is not clicked.
    func click(_ selector: String) throws {
        try command("/element/\(element(selector))/click")
    }

    /// Types keys where the focus is.
    func press(_ key: String) throws {
        let actions = ["keyDown", "keyUp"].map { ["type": $0, "value": key] }
        let keyboard: [String: Any] = ["type": "key", "id": "keys", "actions": actions]
        try command("/actions", ["actions": [keyboard]])
    }

    /// Chooses files in a file input.
    func choose(_ files: [URL], in selector: String) throws {
        let paths = files.map { $0.path(percentEncoded: false) }
        try command("/element/\(element(selector))/value", ["text": paths.joined(separator: "\n")])
    }

    /// Drops files from outside the browser on an element.
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
            try command(
                "/goog/cdp/execute",
                ["cmd": "Input.dispatchDragEvent", "params": event]
            )
        }
    }

    /// What the page's console was told since the last time, errors of the network included.
    func console() throws -> [String] {
        let lines = try command("/se/log", ["type": "browser"]) as? [[String: Any]] ?? []
        return lines.compactMap { $0["message"] as? String }
    }
}
