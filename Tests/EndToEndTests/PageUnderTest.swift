// The shipped page in a browser, before nginx, the daemon and an upstream; between the browser and nginx a
// network that can be cut.

import Foundation
import SpoolgateTestSupport

/// The page, opened, with everything behind it.
final class PageUnderTest {
    let sandbox: Sandbox
    let network: CuttingProxy
    let browser: Browser

    /// Starts everything and opens the page.
    ///
    /// - Parameters:
    ///   - upstream: the upstream's target; nil: the sandbox's drop directory.
    ///   - routeSettings: further lines of the route.
    ///   - isSecure: whether it is reached over TLS, and so HTTP/2.
    /// - Throws: what does not start.
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

    /// Starts everything with one of three engines, which meets the network by its own port, and opens the page.
    ///
    /// - Parameters:
    ///   - engine: the browser's.
    ///   - setup: what the browser is started with.
    ///   - upstream: the upstream's target.
    ///   - isSecure: whether it is reached over TLS, and so HTTP/2.
    /// - Throws: what does not start.
    convenience init(
        _ engine: Engine,
        _ setup: Browser.Setup = Browser.Setup(),
        upstream: String,
        isSecure: Bool = false
    ) throws {
        let sandbox = try Sandbox(
            upstream: upstream,
            front: .nginxWithPages,
            // With the port that the browser names.
            origin: "$scheme://$http_host"
        )
        let network = try CuttingProxy(to: isSecure ? sandbox.tlsPort : sandbox.port)
        self.init(sandbox: sandbox, network: network, browser: try Browser(engine, setup))
        try browser.open("\(isSecure ? "https" : "http")://localhost:\(network.port)/upload/")
    }

    /// Takes over what was started, with a browser that opens the page by itself.
    init(sandbox: Sandbox, network: CuttingProxy, browser: Browser) {
        self.sandbox = sandbox
        self.network = network
        self.browser = browser
    }

    /// Chooses files by the page's input.
    func choose(_ files: URL...) throws { try choose(files) }

    /// The state of a file's item; empty: it has none.
    func state(_ name: String) throws -> String {
        try browser.text("return (\(Self.item))(arguments[0])?.dataset.state ?? ''", name)
    }

    /// Everything that a file's item says.
    func words(_ name: String) throws -> String {
        try browser.text("return (\(Self.item))(arguments[0])?.textContent ?? ''", name)
    }

    /// Bytes that a file's progress bar shows.
    func shown(_ name: String) throws -> Int {
        let script = "return (\(Self.item))(arguments[0])?.querySelector('progress').value ?? 0"
        return try browser.run(script, name) as? Int ?? 0
    }

    /// Waits until a file's item is in a state.
    func awaitState(_ name: String, _ expected: String) throws {
        try eventually("\(name) is \(expected); the page: \(contents())") {
            try state(name) == expected
        }
    }

    /// Waits until a file's item is done or failed.
    func awaitOutcome(_ name: String) throws {
        try eventually("\(name) is done or failed; the page: \(contents())") {
            ["done", "failed"].contains(try state(name))
        }
    }

    /// Chooses several files at once by the page's input.
    func choose(_ files: [URL]) throws { try browser.choose(files, in: "#pick") }

    /// Waits until the page shows that the server has so many bytes of a file.
    func awaitReceived(_ name: String, atLeast bytes: Int = 1) throws {
        try eventually("the page shows what the server has of \(name): \(contents())") {
            try shown(name) >= bytes
        }
    }

    /// Makes a file and chooses it, and waits until the page shows that the server has some of it.
    ///
    /// - Parameters:
    ///   - name: the file's.
    ///   - length: the file's, in bytes.
    ///   - held: bytes that pass the network; then it holds all back.
    ///   - least: bytes that are waited for.
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

    /// Presses a button of a file's item.
    func press(_ button: String, _ name: String) throws {
        try browser.click("li button[aria-label='\(button) \(name)']")
    }

    /// Files that the page asks for again.
    func unfinished() throws -> [String] {
        let script =
            "return [...document.querySelectorAll('#unfinished:not([hidden]) .name')].map((e) => e.textContent)"
        return try browser.run(script) as? [String] ?? []
    }

    /// The requests that nginx has answered, and what the daemon tells of them.
    func history() throws -> String {
        try accessLog() + sandbox.log.suffix(5_000)
    }

    private func accessLog() throws -> String {
        let log = sandbox.directory.appending(path: "nginx/log/access.log")
        return try String(contentsOf: log, encoding: .utf8)
    }

    /// How many violations of the page's policy browsers have reported to nginx.
    func violations() throws -> Int {
        try accessLog().components(separatedBy: "\"POST /csp-report ").count - 1
    }

    /// How many uploads the browser has created, by nginx's log.
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
