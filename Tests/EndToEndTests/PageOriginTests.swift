// The page on another server than its uploads': accepted only if the route names its origin.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@Suite(
    "The page of another origin in a browser",
    .serialized,
    .enabled(if: Engine.chromium.isInstalled, Engine.chromium.missing),
    .sharedBrowser
)
struct PageOriginTests {
    private static let hasOrigins: Bool = {
        let settings = Sandbox.root.appending(path: "deploy/spoolgate.yaml")
        let text = (try? String(contentsOf: settings, encoding: .utf8)) ?? ""
        return text.contains(/\n +#?cors:/)
    }()

    @Test(
        "an origin that the route names uploads, resumes, and reads the response",
        .enabled(if: hasOrigins, "routes have no setting `cors`")
    )
    func allowed() throws {
        let pages = try PageServer()
        let upstream = try LoopbackOrigin(
            status: "422 Unprocessable Content",
            fields: ["Content-Type: application/problem+json"],
            content: #"{"detail": "No picture."}"#
        )
        let sandbox = try Sandbox(
            upstream: upstream.base,
            routeSettings: ["cors: {origins: [\"\(pages.origin)\"]}"],
            origin: "$scheme://$http_host"
        )
        let network = try CuttingProxy(to: sandbox.port)
        pages.upload(to: "http://localhost:\(network.port)")
        let browser = try SharedBrowser.take()
        let page = PageUnderTest(sandbox: sandbox, network: network, browser: browser)
        try browser.open(pages.origin + "/")
        let file = try sandbox.randomFile(4_000_000, "far.bin")
        network.hold(at: 2_000_000)
        try page.choose(file.url)
        try page.awaitReceived("far.bin")
        network.cut()
        try page.awaitState("far.bin", "waiting")
        network.hold(at: nil)
        network.restore()
        try page.awaitState("far.bin", "failed")
        #expect(try page.words("far.bin").contains("No picture."))
        #expect(try page.creations() == 1)
        #expect(upstream.requests.map { Data($0.content) } == [file.bytes])
    }

    @Test("an origin that the route does not name uploads nothing, and its page says why")
    func notAllowed() throws {
        let pages = try PageServer()
        let upstream = try LoopbackOrigin(status: "201 Created")
        let other = Self.hasOrigins ? ["cors: {origins: [\"http://localhost:1\"]}"] : []
        let sandbox = try Sandbox(upstream: upstream.base, routeSettings: other)
        let network = try CuttingProxy(to: sandbox.port)
        pages.upload(to: "http://localhost:\(network.port)")
        let browser = try SharedBrowser.take()
        let page = PageUnderTest(sandbox: sandbox, network: network, browser: browser)
        try browser.open(pages.origin + "/")
        let file = try sandbox.randomFile(300_000, "far.bin")
        try page.choose(file.url)
        try page.awaitState("far.bin", "failed")
        #expect(try page.words("far.bin").contains("does not accept uploads from this page."))
        #expect(try page.creations() == 0)
        #expect(upstream.requests.allSatisfy { $0.method != "POST" })
    }
}
