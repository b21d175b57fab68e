// The recipes of docs/FRONTS.md: real proxies in front of nginx.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("Proxies in front", .enabled(if: Command.find("nginx") != nil, "nginx is not installed"))
struct ProxyRecipeTests {
    private static let versions = ["--http1.1", "--http2"]

    /// Uploads in one request over each version, cuts it, and resumes at a 104's Location.
    private func expectResumesFromInterim(_ chain: ProxyChain) throws {
        let (file, bytes) = try chain.sandbox.randomFile(6 << 20)
        for version in Self.versions {
            try chain.curlCut(
                after: 1 << 19,
                ["Upload-Complete: ?1", "Expect:"],
                [version, "--limit-rate", "1M", "-T", file.path(), chain.url + "film.mp4"]
            )
            let told = try chain.told()
            #expect(try chain.interimResponses() > 0, "\(version): \(told)")
            let location = try #require(try chain.field("location"), "\(version): \(told)")
            #expect(location.hasPrefix(chain.url + "film.mp4/"))
            let resumed = try chain.resume(location, with: bytes, version)
            #expect(resumed.output == "201", "\(version): \(resumed.errors)")
        }
        #expect(try chain.delivered("film.mp4") == [bytes, bytes])
    }

    /// Sends 60 MiB without a length, reported every 4 MiB, and returns the final status.
    ///
    /// A busy disk would sync faster content in fewer steps than the proxy has patience for.
    private func streamUpload(_ chain: ProxyChain) throws -> String {
        let file = try emptyFile(60 << 20, in: chain)
        return try chain.curl(
            ["Upload-Complete: ?1", "Transfer-Encoding: chunked", "Expect:"],
            [
                "--http1.1", "--limit-rate", "12M", "-T", file, "-o", "/dev/null", "-w",
                "%{http_code}", chain.url + "stream.bin",
            ]
        ).output
    }

    private func expectStreamResumes(_ chain: ProxyChain) throws {
        let mark = "location: "
        let line = try chain.told().split(separator: "\r\n").first { $0.hasPrefix(mark) }
        let location = String(try #require(line).dropFirst(mark.count))
        let content = Data(count: 60 << 20)
        let resumed = try chain.resume(location, with: content, "--http1.1")
        #expect(resumed.output == "201", "\(resumed.errors)")
        #expect(try chain.delivered("stream.bin") == [content])
    }

    /// A file of zeros without disk blocks.
    private func emptyFile(_ size: Int, in chain: ProxyChain) throws -> String {
        let file = chain.sandbox.directory.appending(path: "empty.bin").path()
        try #require(FileManager.default.createFile(atPath: file, contents: nil))
        try #require(truncate(file, size) == 0)
        return file
    }

    /// Starts to upload 1.2 GiB, and checks that nginx ignores the client's `X-Forwarded-For`.
    private func expectTakesLargeContent(_ chain: ProxyChain) throws {
        let file = try emptyFile(1_200 << 20, in: chain)
        let status = try chain.curlCut(
            after: 1 << 19,
            ["Upload-Complete: ?1", "X-Forwarded-For: 203.0.113.9"],
            ["--interface", "127.0.0.2", "--limit-rate", "8M", "-T", file, chain.url + "large.bin"]
        )
        #expect(status.contains(#""client":"127.0.0.2""#), "\(status)")
        #expect(!status.contains("203.0.113.9"))
    }

    /// Appends at a wrong offset: the refusal must arrive before the content is read.
    private func expectRefusalArrives(_ chain: ProxyChain, mayReset: Bool = false) throws {
        _ = try chain.curl(
            ["Upload-Complete: ?0", "Content-Length: 0"],
            ["-X", "POST", chain.url + "wrong.bin"]
        )
        let location = try #require(try chain.field("location"))
        let (file, _) = try chain.sandbox.randomFile(300_000, "wrong.bin")
        for version in Self.versions {
            let refused: Command = try eventually("a response over \(version)") {
                let refused = try chain.curl(
                    [
                        "Upload-Offset: 77", "Upload-Complete: ?1", "Expect: 100-continue",
                        "Content-Type: application/partial-upload",
                    ],
                    [
                        version, "--expect100-timeout", "60", "-X", "PATCH", "-T", file.path(),
                        "-o", "/dev/null", "-w", "%{http_code}", location,
                    ]
                )
                // curl's error for a reset stream.
                return mayReset && refused.status == 92 ? nil : refused
            }
            #expect(refused.output == "409", "\(version): \(refused.errors)")
        }
        #expect(try chain.curl([], ["-X", "DELETE", "-f", location]).status == 0)
    }

    /// Runs all checks during a slow upload, which receives a matching number of 104 responses.
    private func expectPassesEverything(
        _ chain: ProxyChain,
        _ version: String,
        mayReset: Bool = false,
        interim: (Int) -> Bool
    ) throws {
        let slow = try chain.startSlowUpload(version)
        let report = try chain.probe()
        #expect(report.complaints == [], "\(report.shown)")
        try expectResumesFromInterim(chain)
        try expectRefusalArrives(chain, mayReset: mayReset)
        try expectTakesLargeContent(chain)
        let ended = try slow.end()
        #expect(ended.status == "201" && interim(ended.interim), "\(ended)")
    }

    // Long because a slow upload lasts while the probe waits for what the proxies do.
    @Test(
        "HAProxy forwards everything",
        .enabled(if: OuterProxy.haproxy.program != nil, "haproxy is not installed")
    )
    func haproxy() throws {
        let chain = try ProxyChain(.haproxy, extra: ProxyChain.manyInterim)
        try expectPassesEverything(chain, "--http2") { $0 > 3 }
    }

    // Long because a slow upload lasts while the probe waits for what the proxies do.
    @Test(
        "Caddy forwards everything, with few interim responses",
        .enabled(if: OuterProxy.caddy.program != nil, "caddy is not installed")
    )
    func caddy() throws {
        let few = try RecipeBlock.text("few", "yaml").split(separator: "\n").map(String.init)
        let chain = try ProxyChain(.caddy, extra: few)
        try expectPassesEverything(chain, "--http2") { $0 == 1 }
    }

    @Test(
        "Caddy with an old Go aborts a request at the sixth interim response; the client resumes",
        .enabled(if: OuterProxy.caddy.program != nil, "caddy is not installed")
    )
    func caddyCounts() throws {
        let program = try #require(OuterProxy.caddy.program)
        let built = try Command(program, ["build-info"]).output
        let minor = try #require(built.firstMatch(of: /go1\.(\d+)/).flatMap { Int($0.1) })
        let chain = try ProxyChain(.caddy)
        let sent = try streamUpload(chain)
        guard minor < 24 else {
            #expect(sent == "201")
            return
        }
        #expect(sent == "502")
        #expect(try chain.interimResponses() == 5)
        try expectStreamResumes(chain)
    }

    // Long because a slow upload lasts while the probe waits for what the proxies do.
    @Test(
        "Apache forwards the first 104 before the content, with few interim responses",
        .enabled(if: OuterProxy.apache2.program != nil, "apache2 is not installed")
    )
    func apache() throws {
        let few = try RecipeBlock.text("few", "yaml").split(separator: "\n").map(String.init)
        let chain = try ProxyChain(.apache2, extra: few)
        // On a busy machine Apache may notice the end of nginx's connection before the refusal on it.
        try expectPassesEverything(chain, "--http1.1", mayReset: true) { $0 == 1 }
    }

    @Test(
        "Apache aborts a request at the tenth interim response, and the client resumes",
        .enabled(if: OuterProxy.apache2.program != nil, "apache2 is not installed")
    )
    func apacheCounts() throws {
        let chain = try ProxyChain(.apache2)
        let sent = try streamUpload(chain)
        // On a busy machine, Apache's reset may precede its response, because content is still on its way.
        #expect(sent == "502" || sent == "000", "\(sent)")
        try expectStreamResumes(chain)
    }

    // Long because a slow upload lasts while the probe waits for what the proxies do.
    @Test("nginx forwards no 104 without the module behind it; clients that create first resume")
    func nginx() throws {
        let chain = try ProxyChain(.nginx, hasModule: false)
        let slow = try chain.startSlowUpload("--http2")
        let report = try chain.probe()
        #expect(report.complaints == ["warn 104-http1", "warn 104-http2"], "\(report.shown)")
        let (file, bytes) = try chain.sandbox.randomFile(6 << 20)
        for version in Self.versions {
            let whole = try chain.curl(
                ["Upload-Complete: ?1"],
                [
                    version, "-T", file.path(), "-o", "/dev/null", "-w", "%{http_code}",
                    chain.url + "whole.mp4",
                ]
            )
            #expect(whole.output == "201", "\(whole.errors)")
            #expect(try chain.interimResponses() == 0)
            _ = try chain.curl(
                ["Upload-Complete: ?0", "Content-Length: 0"],
                [version, "-X", "POST", chain.url + "film.mp4"]
            )
            let location = try #require(try chain.field("location"))
            try chain.curlCut(
                after: 1 << 19,
                [
                    "Upload-Offset: 0", "Upload-Complete: ?1",
                    "Content-Type: application/partial-upload",
                ],
                [version, "--limit-rate", "1M", "-X", "PATCH", "-T", file.path(), location]
            )
            let resumed = try chain.resume(location, with: bytes, version)
            #expect(resumed.output == "201", "\(version): \(resumed.errors)")
        }
        #expect(try chain.delivered("film.mp4") == [bytes, bytes])
        #expect(try chain.delivered("whole.mp4") == [bytes, bytes])
        try expectRefusalArrives(chain)
        try expectTakesLargeContent(chain)
        let ended = try slow.end()
        #expect(ended.status == "201" && ended.interim == 0, "\(ended)")
    }

    @Test("with the module behind nginx, uploads over HTTP/2 end, and probe names the package")
    func nginxBeforeTheModule() throws {
        let chain = try ProxyChain(.nginx)
        let (file, _) = try chain.sandbox.randomFile(1 << 20)
        let sent = try chain.curl(
            ["Upload-Complete: ?1"],
            ["--http2", "-T", file.path(), chain.url + "film.mp4"]
        )
        #expect(sent.status != 0)
        let report = try chain.probe("--http", "2")
        report.expect("104-http2", "fail", ["apt remove libnginx-mod-http-interim"])
    }

    @Test("a large file passes a proxy with a smaller limit, through the recipe's limit or its 413")
    func cloudflare() throws {
        let limits = try RecipeBlock.route("cloudflare")
        let smaller: KeyValuePairs = ["client_max_body_size 0;": "client_max_body_size 100000000;"]
        for settings in [limits, []] {
            let chain = try ProxyChain(
                .nginx,
                hasModule: false,
                routeSettings: settings,
                changes: smaller
            )
            let file = try emptyFile(120 << 20, in: chain)
            let sent = try Command(
                UploadCommandWorld.program,
                ["--cacert", chain.certificate, "--http1.1", file, chain.url + "large.bin"],
                environment: [
                    "XDG_STATE_HOME": chain.sandbox.directory.path() + "/state", "no_proxy": "*",
                ]
            )
            #expect(sent.status == 0, "\(sent.errors)")
            #expect(try chain.sandbox.delivered().count == 1)
        }
    }
}
