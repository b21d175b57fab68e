// A spool that one build wrote, served by a later or earlier one.
//
// `make test` serves the stored spools (Tests/Lab/Upgrade). `make upgrade-test PREVIOUS=COMMIT` runs both directions.

import Foundation
import SpoolgateTestSupport
import Testing

enum PreviousBuild {
    static let program = ProcessInfo.processInfo.environment["SPOOLGATE_PREVIOUS"]
    /// Its sources if Tests/Lab/Upgrade/previous.sh built it, otherwise those of the build under test.
    static let sources: URL = {
        let root = URL(filePath: program ?? "").deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
        let file = root.appending(path: "nginx/nginx.conf").path()
        return FileManager.default.fileExists(atPath: file) ? root : Sandbox.root
    }()
    /// The commit whose spool to store; nil: none.
    static let stored = ProcessInfo.processInfo.environment["SPOOLGATE_STORE"]
    static let isMissing: Comment = "the other build is missing: make upgrade-test"
}

@Suite("A spool of another build")
struct UpgradeTests {
    @Test(
        "uploads of an earlier build are unchanged, and finish once",
        .enabled(if: Command.find("nginx") != nil, "nginx is not installed"),
        arguments: StoredSpool.commits,
        [false, true]
    )
    func stored(commit: String, isAfterPowerCut: Bool) throws {
        let spool = try StoredSpool(
            of: commit,
            UpgradeCase.all,
            isAfterPowerCut: isAfterPowerCut
        )
        #expect(Set(spool.uploads.map(\.name)) == Set(UpgradeCase.all.map(\.name)))
        let events = try WaitingEvents(in: spool.directory)
        let stage = try UpgradeStage(Sandbox.program, .node, stored: spool)
        try stage.check()
        try stage.carry(UpgradeCase.all)
        try stage.checkPurge()
        try events.checkSent(stage)
    }
}

struct WaitingEvents {
    /// The identifiers, in order.
    let deliveries: [String]

    init(in spool: String) throws {
        let folder = spool + "/events"
        let names = try FileManager.default.contentsOfDirectory(atPath: folder).sorted()
        let late = names.filter { $0.hasPrefix("late-") }
        let lines = try (["sending"] + late + ["pending"]).filter(names.contains).flatMap {
            try String(contentsOfFile: "\(folder)/\($0)", encoding: .utf8).split(separator: "\n")
        }
        deliveries = lines.filter { $0.hasPrefix("- ") }
            .map { String($0.split(separator: " ")[1]) }
    }

    /// The receiver gets them in order and before all others.
    func checkSent(_ stage: UpgradeStage) throws {
        #expect(!deliveries.isEmpty)
        try stage.upstreams.startReceiver()
        // Up to five minutes pass between two attempts; a new daemon tries at once.
        try stage.sandbox.crash()
        try eventually("the events are received", seconds: 60) {
            stage.upstreams.events.count >= deliveries.count
        }
        let received = stage.upstreams.events.map(\.delivery)
        #expect(Array(received.prefix(deliveries.count)) == deliveries)
        #expect(Set(received).count == received.count)
    }
}
