// Whether nginx writes content into the spool: the conclusion from the daemon's report and nginx's files.

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
        var judged = Judged(ReceiveEvidence(path: path, nginx: nginx).finding, level)
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
                NginxLane(directive: directive("worker")),
                .ok,
                "in use: nginx writes content into the spool in its workers (spool_receive worker;)",
                "a stalled disk stalls the workers"
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
        let finding = ReceiveEvidence(route: "a", path: .off).finding
        #expect(finding.name == "receive" && finding.text.hasPrefix("a: not in use: "))
    }
}
