// The shipped page in a browser, with a network that can be cut.

import Foundation
import SpoolgateTestSupport

final class PageUnderTest {
    let sandbox: Sandbox
    let network: CuttingProxy
    let browser: Browser

    /// The default upstream is the sandbox's drop directory; the default browser is the suite's.
    convenience init(
        _ engine: Engine = .chromium,
        _ setup: Browser.Setup? = nil,
        upstream: String? = nil,
        routeSettings: [String] = [],
        isSecure: Bool = false,
        front: Front = .nginxWithPage
    ) throws {
        let sandbox = try Sandbox(
            upstream: upstream,
            routeSettings: routeSettings,
            front: front,
            // The origin must have the port in the browser's URL.
            origin: "$scheme://$http_host"
        )
        let network = try CuttingProxy(to: isSecure ? sandbox.tlsPort : sandbox.port)
        let browser = try setup.map { try Browser(engine, $0) } ?? SharedBrowser.take(engine)
        self.init(sandbox: sandbox, network: network, browser: browser)
        try browser.open("\(isSecure ? "https" : "http")://localhost:\(network.port)/upload/")
        // An earlier page may have had this port.
        if setup == nil { try browser.run("localStorage.clear()") }
    }

    init(sandbox: Sandbox, network: CuttingProxy, browser: Browser) {
        self.sandbox = sandbox
        self.network = network
        self.browser = browser
    }

    func choose(_ files: URL...) throws { try choose(files) }

    func state(_ name: String) throws -> String {
        try browser.text("return (\(Self.item))(arguments[0])?.dataset.state ?? ''", name)
    }

    func words(_ name: String) throws -> String {
        try browser.text("return (\(Self.item))(arguments[0])?.textContent ?? ''", name)
    }

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

    func choose(_ files: [URL]) throws { try browser.choose(files, in: "#pick") }

    func awaitReceived(_ name: String, atLeast bytes: Int = 1) throws {
        try eventually("the page shows the received bytes of \(name): \(contents())") {
            try shown(name) >= bytes
        }
    }

    /// Uploads a new file until the page shows `least` bytes; the network holds back those after `held`.
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

    /// The files that the page asks for again.
    func unfinished() throws -> [String] {
        let script =
            "return [...document.querySelectorAll('#unfinished:not([hidden]) .name')].map((e) => e.textContent)"
        return try browser.run(script) as? [String] ?? []
    }

    func history() throws -> String {
        try accessLog() + sandbox.log.suffix(5_000)
    }

    private func accessLog() throws -> String {
        let log = sandbox.directory.appending(path: "nginx/log/access.log")
        return try String(contentsOf: log, encoding: .utf8)
    }

    func violations() throws -> Int {
        try accessLog().components(separatedBy: "\"POST /csp-report ").count - 1
    }

    /// The number of uploads that the browser created, by nginx's log.
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
