// The states of spoolgate-spool(5) as earlier builds left them, in stored spools (Tests/Lab/Upgrade).

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

@Suite("The states of an earlier build")
struct StoredStateTests {
    /// The archives, named after the commits that wrote them.
    private static let archives: [String] = {
        let folder = StateRow.page.deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: "Tests/Lab/Upgrade/spools/").path()
        let names = (try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []
        return names.filter { $0.hasSuffix("-states.tar.xz") }.sorted().map { "\(folder)\($0)" }
    }()

    @Test(
        "each is unchanged after this build",
        arguments: archives,
        [false, true]
    )
    func states(archive: String, afterPowerCut: Bool) throws {
        for byWalk in [false, true] {
            let folder = try ScratchDirectory(in: ScratchDirectory.memory)
            let tar = Process()
            tar.executableURL = URL(filePath: "/usr/bin/tar")
            tar.arguments = ["-xJpf", archive, "--no-same-owner", "-C", folder.path]
            try tar.run()
            tar.waitUntilExit()
            try #require(tar.terminationStatus == 0)
            let names = folder.names
            #expect(names.count >= 50)
            for name in names {
                let parts = name.split(separator: ".").map(String.init)
                let row = try #require(StateRow.all.first { $0.state == parts[0] })
                let id = try #require(UploadID(parts[1]))
                let spool = TemporarySpool(existing: folder.file(name))
                let found = StateFound(row, spool, id, afterPowerCut: afterPowerCut)
                if byWalk { try found.checkWalk() } else { try found.checkAttaching() }
            }
        }
    }
}
