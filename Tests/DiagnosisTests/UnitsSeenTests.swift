// The state of the units and the daemon: a socket held by systemd does not prove that the daemon runs.

@testable import SpoolgateDiagnosis
import Testing

@Suite struct UnitsSeenTests {
    struct Case: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var service: [String: String] = [:]
        var socket: [String: String] = [:]
        var purge: [String: String] = [:]
        var levels: [Finding.Level]
        var words: [String] = []
    }

    private static let loaded = ["LoadState": "loaded", "ActiveState": "active"]

    private static func waiting(_ result: String, _ status: String, restarts: Int) -> [String:
        String]
    {
        [
            "ActiveState": "activating", "SubState": "auto-restart", "Result": result,
            "ExecMainStatus": status, "NRestarts": "\(restarts)",
        ]
    }

    static let cases = [
        Case(
            testDescription: "all units run",
            service: ["NRestarts": "0"],
            levels: [.ok],
            words: ["spoolgate.service active, spoolgate.socket active"]
        ),
        Case(
            testDescription: "the first connection starts the service",
            service: ["ActiveState": "inactive"],
            levels: [.ok]
        ),
        Case(
            testDescription: "systemd waits for the next try, and holds the socket meanwhile",
            service: waiting("exit-code", "78", restarts: 57),
            levels: [.failure],
            words: ["does not stay up", "57 times", "exit status 78", "spoolgate check"]
        ),
        Case(
            testDescription: "a directory of the unit is not there",
            service: waiting("exit-code", "226", restarts: 3),
            levels: [.failure],
            words: ["exit status 226", "ReadWritePaths="]
        ),
        Case(
            testDescription: "it is killed for want of memory",
            service: waiting("oom-kill", "9", restarts: 1),
            levels: [.failure],
            words: ["restarted it once (oom-kill)", "journalctl -u spoolgate"]
        ),
        Case(
            testDescription: "the next try has just begun",
            service: [
                "ActiveState": "activating", "SubState": "start", "NRestarts": "4",
                "Result": "signal", "ExecMainStatus": "6",
            ],
            levels: [.failure],
            words: ["does not stay up", "killed by signal 6", "journalctl -u spoolgate"]
        ),
        Case(
            testDescription: "the first start takes its time",
            service: ["ActiveState": "activating", "SubState": "start", "NRestarts": "0"],
            levels: [.warning],
            words: ["is starting"]
        ),
        Case(
            testDescription: "it was restarted after a crash",
            service: ["NRestarts": "1"],
            levels: [.ok],
            words: ["automatic restarts: 1"]
        ),
        Case(
            testDescription: "systemd has given it up",
            service: ["ActiveState": "failed", "Result": "exit-code", "ExecMainStatus": "73"],
            levels: [.failure],
            words: ["exit status 73", "systemctl start spoolgate.socket spoolgate"]
        ),
        Case(
            testDescription: "the socket has failed",
            service: ["NRestarts": "0"],
            socket: ["ActiveState": "failed", "Result": "trigger-limit-hit"],
            levels: [.failure],
            words: ["trigger-limit-hit", "systemctl start spoolgate.socket spoolgate"]
        ),
        Case(
            testDescription: "the purge failed",
            purge: ["ActiveState": "failed", "Result": "exit-code", "ExecMainStatus": "69"],
            levels: [.ok, .warning],
            words: [
                "spoolgate-purge.service failed (exit status 69)", "journalctl -u spoolgate-purge",
            ]
        ),
        Case(
            testDescription: "a drop-in of the unit is wrong",
            service: ["LoadState": "bad-setting", "ActiveState": "inactive"],
            levels: [.failure],
            words: ["systemd cannot load spoolgate.service (bad-setting)"]
        ),
        Case(
            testDescription: "the socket is gone",
            socket: ["LoadState": "not-found", "ActiveState": "inactive"],
            levels: [.failure],
            words: ["spoolgate.socket (not-found)"]
        ),
    ]

    @Test("systemd's properties of the units", arguments: cases)
    func judged(one: Case) {
        func all(_ changes: [String: String]) -> [String: String] {
            Self.loaded.merging(changes) { $1 }
        }
        let seen = UnitsEvidence(
            service: all(one.service),
            socket: all(one.socket),
            purge: all(one.purge)
        )
        let findings = UnitsEvidence.findings(seen)
        #expect(findings.map(\.level) == one.levels)
        let text = findings.map(\.line).joined(separator: "\n")
        for word in one.words { #expect(text.contains(word), "\(text)") }
        for finding in findings { #expect((finding.level == .ok) == finding.fixes.isEmpty) }
    }

    @Test(
        "three units are read in turn, or none if systemd knows neither service nor socket"
    )
    func read() throws {
        func shown(_ states: [String]) -> String {
            states.map { "LoadState=\($0)\nActiveState=inactive\nResult=\n" }.joined(
                separator: "\n"
            )
        }
        let seen = try #require(
            UnitsEvidence(shown: shown(["loaded", "bad-setting", "not-found"]))
        )
        #expect(seen.service["LoadState"] == "loaded" && seen.service["Result"]?.isEmpty == true)
        #expect(seen.socket["LoadState"] == "bad-setting" && seen.run == .down)
        #expect(UnitsEvidence(shown: shown(["not-found", "not-found", "not-found"])) == nil)
        #expect(UnitsEvidence(shown: "") == nil)
        #expect(UnitsEvidence.findings(nil).map(\.level) == [.skipped])
    }

    @Test(
        "only the daemon's own response proves that it serves",
        arguments: [
            (
                DaemonEvidence.Response.status("OK: 0 receiving"),
                UnitsEvidence.Run?.some(.running),
                Finding.Level.ok
            ),
            (.status("WARNING: 1 needs attention"), .running, .warning),
            (.status("CRITICAL: 0 receiving; spool-writable: x"), .running, .failure),
            (.noListener, .running, .warning), (.noListener, .waiting, .skipped),
            (.noListener, .down, .failure),
            (.noListener, nil, .failure), (.denied, .running, .skipped),
            (.silence("it took too long"), .running, .failure),
        ]
    )
    func daemon(response: DaemonEvidence.Response, run: UnitsEvidence.Run?, level: Finding.Level) {
        let finding = DaemonEvidence(socket: "/run/admin.sock", response: response, run: run)
            .finding
        #expect(finding.level == level)
        #expect([.ok, .skipped].contains(level) == finding.fixes.isEmpty)
    }
}
