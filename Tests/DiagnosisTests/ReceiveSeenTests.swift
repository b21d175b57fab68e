// Whether nginx writes content into the spool: the conclusion, and the facts read from nginx.

@testable import SpoolgateDiagnosis
import SpoolgateExchange
import Testing

@Suite struct ReceiveSeenTests {
    private static func directive(_ value: String) -> NginxDirective {
        NginxDirective(words: ["spool_receive", value], file: "/n", line: 3)
    }

    private static func judged(
        _ path: ContentPath?,
        _ nginx: NginxLane?,
        _ level: Finding.Level,
        _ words: String...
    ) -> Judged {
        var judged = Judged(ReceiveSeen(path: path, nginx: nginx).finding, level)
        judged.words = words
        return judged
    }

    private static let on = NginxLane(directive: directive("on"))

    @Test(
        "spool receive is in use, or the reason is given, with a fix if nothing else reports it",
        arguments: [
            judged(.used, nil, .ok, "in use: nginx writes content into the spool"),
            judged(.used, on, .ok, "into the spool on threads (spool_receive on;)"),
            judged(
                .used,
                NginxLane(directive: directive("worker"), fileSizeLimit: 1 << 30),
                .ok,
                "in use: nginx writes content into the spool in its workers (spool_receive worker;)",
                "a stalled disk stalls the workers",
                "content beyond 1.0GiB passes through the gateway"
            ),
            judged(.off, on, .ok, "not in use: the route has spool-receive: off"),
            judged(.shared, on, .ok, "not in use: the spool is shared"),
            judged(
                .unusable,
                on,
                .warning,
                "not in use: nginx could not use the data file",
                "AppArmor or SELinux"
            ),
            judged(.digest, on, .skipped, "not in use: the content has a digest"),
            judged(.notOffered, nil, .skipped, "the web server did not offer to write content"),
            judged(nil, nil, .skipped, "no large content was received yet"),
            judged(nil, on, .skipped, "no large content was received yet"),
            judged(
                .notOffered,
                NginxLane(hasModule: false),
                .skipped,
                "nginx's files do not load ngx_http_interim_module"
            ),
            judged(
                nil,
                NginxLane(directive: directive("on"), isBuffering: true),
                .skipped,
                "fastcgi_request_buffering on"
            ),
            judged(
                .notOffered,
                NginxLane(directive: directive("on"), passesFiles: false),
                .ok,
                "by TCP, which cannot pass files"
            ),
            judged(
                .notOffered,
                NginxLane(),
                .warning,
                "no spool_receive applies to the location",
                Fix.location,
                Fix.module
            ),
            judged(
                .notOffered,
                NginxLane(directive: directive("off")),
                .ok,
                "not in use: 'spool_receive off;' at /n:3"
            ),
            judged(
                .notOffered,
                on,
                .warning,
                "'spool_receive on;' is set at /n:3",
                "nginx -s reload",
                Fix.module
            ),
        ]
    )
    func found(judged: Judged) { judged.expectRight() }

    @Test("a finding about a route begins with its name")
    func route() {
        let finding = ReceiveSeen(route: "a", path: .off).finding
        #expect(finding.name == "receive" && finding.text.hasPrefix("a: not in use: "))
    }

    private static func lane(_ lines: String, pass: String = "unix:/g.sock") throws -> NginxLane {
        let dump = NginxDump(
            """
            # configuration file /n:
            load_module modules/ngx_http_interim_module.so;
            http { spool_receive worker; server { location /files/ {
            fastcgi_pass \(pass); fastcgi_request_buffering off;
            \(lines)
            } } }
            """
        )
        let place = try #require(dump.locations(of: "/files/", host: "a", port: 80).first)
        return dump.lane(at: place, NginxProcesses(of: ["nginx", "-c", "/nowhere"]))
    }

    @Test(
        "the directive in effect is read from nginx's files; one \"off\" among several in a block is enough"
    )
    func files() throws {
        #expect(try Self.lane("").directive?.text == "spool_receive worker;")
        let both = try Self.lane("spool_receive OFF; spool_receive on;")
        #expect(both.directive?.text == "spool_receive OFF;" && !both.isOn)
        let lane = try Self.lane("spool_receive on;", pass: "127.0.0.1:9000")
        #expect(lane.isOn && lane.hasModule && !lane.passesFiles && !lane.isBuffering)
        #expect(try Self.lane("spool_receive on;").passesFiles)
        #expect(try Self.lane("spool_receive on;", pass: "$spoolgate_node").passesFiles)
        let plain = NginxDump(
            "# configuration file /n:\nhttp { server { location / { fastcgi_pass a; } } }"
        )
        let place = try #require(plain.locations(of: "/", host: "a", port: 80).first)
        let none = plain.lane(at: place, NginxProcesses(of: ["nginx", "-c", "/nowhere"]))
        #expect(!none.hasModule && none.isBuffering && none.directive == nil)
    }

    @Test("a process's file size limit")
    func limits() {
        let head =
            "Limit                     Soft Limit           Hard Limit           Units     \n"
        let line =
            "Max file size             SOFT                 unlimited            bytes     \n"
        let text = head + line
        #expect(NginxProcesses.fileSizeLimit(text.replacing("SOFT", with: "1048576")) == 1 << 20)
        #expect(NginxProcesses.fileSizeLimit(text.replacing("SOFT", with: "unlimited")) == nil)
        #expect(NginxProcesses.fileSizeLimit(head) == nil)
    }
}
