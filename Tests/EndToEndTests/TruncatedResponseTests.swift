// An upstream that never completes its response: the client receives the head or a 502, and never takes the response
// for complete.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("An incomplete response of the upstream")
struct TruncatedResponseTests {
    enum Version: CaseIterable { case http1, http2 }

    /// Uploads and a pass-through request.
    private static let methods = ["POST", "PUT", "GET", "DELETE"]

    private func url(_ sandbox: Sandbox, _ protocolName: Version) -> String {
        switch protocolName {
        case .http1: "http://127.0.0.1:\(sandbox.port)"
        case .http2: "https://127.0.0.1:\(sandbox.tlsPort)"
        }
    }

    private func check(_ front: Front, _ protocolName: Version) throws {
        let origin = try LoopbackOrigin.truncating()
        let sandbox = try Sandbox(upstream: origin.base, front: front)
        for method in Self.methods {
            for (index, response) in TruncatedResponse.all.enumerated() {
                let before = origin.requests.count
                let content = method.hasPrefix("P") ? ["--data-binary", "hello"] : []
                let curl = try sandbox.curl(
                    content + [
                        "-k", "-X", method, protocolName == .http2 ? "--http2" : "--http1.1", "-o",
                        "/dev/null", "-w", "%{http_code}",
                        "\(url(sandbox, protocolName))/files/a?\(index)",
                    ]
                )
                let label = "\(method): \(response): \(curl.errors)"
                #expect(curl.output == (response.isBegun ? "200" : "502"), "\(label)")
                // A part is never taken for the whole.
                #expect((curl.status == 0) == !response.isBegun, "\(label)")
                #expect(origin.requests.count == before + 1, "\(label)")
            }
        }
        for method in ["GET", "HEAD"] {
            #expect(try sandbox.ask(method, "/files/whole").status == 200)
        }
    }

    @Test("nginx alone sends its head, or a 502", arguments: Version.allCases)
    func nginx(protocolName: Version) throws { try check(.nginx, protocolName) }

    @Test("nginx with the module sends its head, or a 502", arguments: Version.allCases)
    func nginxWithModule(protocolName: Version) throws { try check(.nginxWithModule, protocolName) }

    @Test("nginx that keeps connections to the gateway sends its head, or a 502")
    func nginxKeeping() throws { try check(.nginxKeeping, .http1) }

    @Test("lighttpd sends its head, or a 502")
    func lighttpd() throws { try check(.lighttpd, .http1) }

    @Test(
        "Chromium sends a POST once",
        .enabled(if: Engine.chromium.isInstalled, Engine.chromium.missing),
        arguments: [Front.nginx, .nginxWithModule],
        Version.allCases
    )
    func chromium(front: Front, protocolName: Version) throws {
        let origin = try LoopbackOrigin.truncating()
        let sandbox = try Sandbox(upstream: origin.base, front: front)
        let browser = try Browser()
        try browser.open(url(sandbox, protocolName) + "/files/page")
        for (index, response) in TruncatedResponse.all.enumerated() {
            let result = try browser.text(
                """
                return fetch('/files/a?' + arguments[0], { method: 'POST', body: 'hello' })
                    .then((response) => response.text().then(() => response.status + ' whole'))
                    .catch(() => 'failed')
                """,
                "\(index)"
            )
            #expect(result == (response.isBegun ? "failed" : "502 whole"), "\(response)")
            let posts = origin.all.filter { $0.line.hasPrefix("POST /files/a?\(index) ") }
            #expect(posts.count == 1, "\(response)")
        }
    }
}
