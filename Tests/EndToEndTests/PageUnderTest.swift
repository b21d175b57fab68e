// The shipped page in a browser, with nginx, the daemon and an upstream, and a network that can be cut between browser
// and nginx.

import Foundation
import SpoolgateTestSupport

/// The open page, with all its servers.
final class PageUnderTest {
    let sandbox: Sandbox
    let network: CuttingProxy
    let browser: Browser

    /// Starts everything and opens the page.
    ///
    /// - Parameters:
    ///   - upstream: the upstream's target; nil: the sandbox's drop directory.
    ///   - routeSettings: further lines of the route.
    ///   - isSecure: whether the page uses TLS, and so HTTP/2.
    /// - Throws: an error if one of them does not start.
    convenience init(
        upstream: String? = nil,
        routeSettings: [String] = [],
        isSecure: Bool = false
    ) throws {
        let sandbox = try Sandbox(
            upstream: upstream,
            routeSettings: routeSettings,
            front: .nginxWithPage
        )
        let port = isSecure ? sandbox.tlsPort : sandbox.port
        let network = try CuttingProxy(to: port)
        let browser = try Browser(detours: ["localhost:\(port)": network.port])
        self.init(sandbox: sandbox, network: network, browser: browser)
        try browser.open("\(isSecure ? "https" : "http")://localhost:\(port)/upload/")
    }

    /// Starts everything with one of three engines, which reaches the network through its own port, and opens the page.
    ///
    /// - Parameters:
    ///   - engine: the browser's engine.
    ///   - setup: the browser's setup.
    ///   - upstream: the upstream's target.
    ///   - isSecure: whether the page uses TLS, and so HTTP/2.
    /// - Throws: an error if one of them does not start.
    convenience init(
        _ engine: Engine,
        _ setup: Browser.Setup = Browser.Setup(),
        upstream: String,
        isSecure: Bool = false
    ) throws {
        let sandbox = try Sandbox(
            upstream: upstream,
            front: .nginxWithPages,
            // With the port in the browser's URL.
            origin: "$scheme://$http_host"
        )
        let network = try CuttingProxy(to: isSecure ? sandbox.tlsPort : sandbox.port)
        self.init(sandbox: sandbox, network: network, browser: try Browser(engine, setup))
        try browser.open("\(isSecure ? "https" : "http")://localhost:\(network.port)/upload/")
    }

    /// Uses running servers and a browser that opens the page itself.
    init(sandbox: Sandbox, network: CuttingProxy, browser: Browser) {
        self.sandbox = sandbox
        self.network = network
        self.browser = browser
    }

    /// Chooses files in the page's input.
    func choose(_ files: URL...) throws { try choose(files) }

    /// The state of a file's item; empty if it has none.
    func state(_ name: String) throws -> String {
        try browser.text("return (\(Self.item))(arguments[0])?.dataset.state ?? ''", name)
    }

    /// The text of a file's item.
    func words(_ name: String) throws -> String {
        try browser.text("return (\(Self.item))(arguments[0])?.textContent ?? ''", name)
    }

    /// The bytes that a file's progress bar shows.
    func shown(_ name: String) throws -> Int {
        let script = "return (\(Self.item))(arguments[0])?.querySelector('progress').value ?? 0"
        return try browser.run(script, name) as? Int ?? 0
    }

    func awaitState(_ name: String, _ expected: String) throws {
        try eventually("\(name) is \(expected); the page: \(contents())") {
            try state(name) == expected
        }
    }

    func awaitOutcome(_ name: String) throws {
        try eventually("\(name) is done or failed; the page: \(contents())") {
            ["done", "failed"].contains(try state(name))
        }
    }

    /// Chooses several files at once in the page's input.
    func choose(_ files: [URL]) throws { try browser.choose(files, in: "#pick") }

    /// Waits until the page shows that the server has received this many bytes of a file.
    func awaitReceived(_ name: String, atLeast bytes: Int = 1) throws {
        try eventually("the page shows what the server has of \(name): \(contents())") {
            try shown(name) >= bytes
        }
    }

    /// Creates a file, chooses it, and waits until the page shows that the server has received some of it.
    ///
    /// - Parameters:
    ///   - name: the file's name.
    ///   - length: the file's length in bytes.
    ///   - held: the bytes that pass the network before it holds the rest back.
    ///   - least: the bytes to wait for.
    /// - Returns: the file.
    /// - Throws: `NeverHappened` if they do not arrive.
    func begin(
        _ name: String,
        _ length: Int,
        holdingAt held: Int,
        atLeast least: Int = 1
    ) throws -> (url: URL, bytes: Data) {
        let file = try sandbox.randomFile(length, name)
        network.hold(at: held)
        try choose(file.url)
        try awaitReceived(name, atLeast: least)
        return file
    }

    func press(_ button: String, _ name: String) throws {
        try browser.click("li button[aria-label='\(button) \(name)']")
    }

    /// The names of the files that the page asks for again.
    func unfinished() throws -> [String] {
        let script =
            "return [...document.querySelectorAll('#unfinished:not([hidden]) .name')].map((e) => e.textContent)"
        return try browser.run(script) as? [String] ?? []
    }

    /// The requests in nginx's log, and the daemon's log.
    func history() throws -> String {
        try accessLog() + sandbox.log.suffix(5_000)
    }

    private func accessLog() throws -> String {
        let log = sandbox.directory.appending(path: "nginx/log/access.log")
        return try String(contentsOf: log, encoding: .utf8)
    }

    /// The number of policy violations that browsers reported to nginx.
    func violations() throws -> Int {
        try accessLog().components(separatedBy: "\"POST /csp-report ").count - 1
    }

    /// The number of uploads that the browser has created, by nginx's log.
    func creations(over version: String = "HTTP/1.1") throws -> Int {
        try accessLog()
            .components(separatedBy: "\"POST /files/ \(version)\"").count - 1
    }

    private func contents() -> String {
        (try? browser.text("return document.querySelector('main').innerText")) ?? "no page"
    }

    private static let item = """
        (name) => [...document.querySelectorAll('#list > li')]
            .find((node) => node.querySelector('bdi').textContent === name)
        """
}
