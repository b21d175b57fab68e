// The shipped unit's command for the operator's socket, run as root with its own /run.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite(
    "The unit",
    .enabled(if: geteuid() == 0 && SmallDisk.isPossible, "only root can change a file's group")
)
struct UnitFileTests {
    /// Without systemd's prefix characters.
    private static func command() throws -> String {
        let unit = Sandbox.root.appending(path: "deploy/spoolgate.service")
        let lines = try String(contentsOf: unit, encoding: .utf8).split(separator: "\n")
        let line = try #require(lines.first { $0.hasPrefix("ExecStartPost=") })
        // Without systemd's expansions, a shell parses it as systemd does.
        #expect(!line.contains("$") && !line.contains("%"))
        return String(line.dropFirst("ExecStartPost=".count).drop { "-+".contains($0) })
    }

    private static func bind(_ name: String) -> String {
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"\(name)\")'; "
    }

    @Test(
        "admin.sock gets the group of spoolgate.socket, or Debian's if the socket is in another directory",
        arguments: [
            ("chgrp games spoolgate.sock; ", "games"), ("rm spoolgate.sock; ", "www-data"),
            ("rm spoolgate.sock admin.sock; touch admin.sock; ", "root"),
        ]
    )
    func adminSocket(change: String, group: String) throws {
        let script =
            "set -e; mount -t tmpfs tmpfs /run; mkdir /run/spoolgate; cd /run/spoolgate; "
            + Self.bind("spoolgate.sock") + Self.bind("admin.sock") + change
            + (try Self.command()) + "; stat -c %G /run/spoolgate/admin.sock"
        let done = try Command(SmallDisk.unshare[0], SmallDisk.unshare.dropFirst() + [script])
        #expect(done.status == 0 && done.errors.isEmpty, "\(done.errors)")
        #expect(done.output == group + "\n")
    }
}
