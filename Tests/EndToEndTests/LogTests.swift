// The log in a file and in a service manager's journal.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("The log")
struct LogTests {
    /// A launcher that sets `JOURNAL_STREAM` to the expansion of `stream`.
    private static func launcher(_ stream: String) -> [String] {
        ["sh", "-c", "export JOURNAL_STREAM=\(stream) && exec \"$0\" \"$@\""]
    }

    private static let journal = "$(stat -L -c %d:%i /proc/self/fd/2)"

    private func lines(_ stream: String) throws -> [String] {
        let sandbox = try Sandbox(
            extra: ["log-level: debug", "events: {to: journal}"],
            launcher: [Command.find("sh") ?? "sh"] + Self.launcher(stream).dropFirst()
        )
        let response = try sandbox.ask(
            "PUT",
            "/files/a%20b.txt\u{202e}x=%22\u{9b}",
            ["Upload-Complete: ?1", "Upload-Draft-Interop-Version: 6"],
            content: Data(repeating: 7, count: 300_000)
        )
        #expect(response.status == 201)
        try eventually("the events are logged: \(sandbox.log.suffix(2_000))") {
            // The daemon says that it has started once it serves.
            ["msg=\"daemon started\"", "msg=\"upload delivered\"", "\"delivered\""]
                .allSatisfy(sandbox.log.contains)
        }
        #expect(
            !sandbox.log.unicodeScalars.contains { "\u{202e}\u{9b}".unicodeScalars.contains($0) }
        )
        return sandbox.log.split(separator: "\n").map(String.init)
    }

    @Test("in the journal each line begins with its priority and has no time or level")
    func journal() throws {
        let lines = try lines(Self.journal)
        for line in lines { #expect(line.firstMatch(of: /^<[2-7]>(msg=|\{)/) != nil, "\(line)") }
        func priorities(_ text: String) -> Set<String> {
            Set(lines.filter { $0.contains(text) }.map { String($0.prefix(3)) })
        }
        #expect(priorities("msg=\"daemon started\" ") == ["<5>"])
        #expect(priorities("msg=\"upload delivered\" ") == ["<6>"])
        #expect(priorities("\"event\":") == ["<6>"])
        #expect(!lines.contains { $0.contains("time=") || $0.contains("level=") })
        #expect(lines.contains { $0.contains("\\u202ex=") && $0.contains("\\u009b\"") })
    }

    @Test(
        "elsewhere each line has a time and a level, also if JOURNAL_STREAM belongs to another stream",
        arguments: ["", "1:1"]
    )
    func file(stream: String) throws {
        let lines = try lines(stream)
        for line in lines where !line.hasPrefix("{\"") {
            let pattern = /^time=[0-9-]{10}T[0-9:]{8}\.\d{3}Z level=[a-z]+ msg=/
            #expect(line.firstMatch(of: pattern) != nil, "\(line)")
        }
        #expect(lines.contains { $0.contains(" level=notice msg=\"daemon started\" listen=unix:") })
        #expect(lines.contains { $0.contains(" level=info msg=\"upload delivered\" upload=") })
        #expect(lines.contains { $0.hasPrefix("{\"") && $0.contains("\"event\":") })
    }

    @Test("the sentence a command fails with is an error in the journal")
    func failure() throws {
        for (stream, mark) in [(Self.journal, "<3>"), ("1:1", "")] {
            let command = Self.launcher(stream) + [Sandbox.program, "serve", "--config", "/none"]
            let failed = try Command(Command.find("sh") ?? "sh", Array(command.dropFirst()))
            #expect(failed.status == 78)
            #expect(failed.errors.hasPrefix("\(mark)spoolgate: "), "\(failed.errors)")
        }
    }

    @Test(
        "a kernel that hides its boot identity is logged with the fix",
        .enabled(if: SmallDisk.isPossible, "no file system can be mounted here")
    )
    func bootIdentity() throws {
        let spool = FileManager.default.temporaryDirectory.appending(path: "boot-\(UUID())").path()
        defer { try? FileManager.default.removeItem(atPath: spool) }
        let hiding = "mount -t tmpfs tmpfs /proc/sys/kernel/random && exec \"$0\" \"$@\""
        let failed = try Command(
            SmallDisk.unshare[0],
            SmallDisk.unshare.dropFirst() + [
                hiding, Sandbox.program, "serve", "--spool", spool, "--listen",
                "unix:\(spool).sock", "--upstream", "directory:/tmp",
            ]
        )
        #expect(failed.status == 73)
        #expect(failed.errors.contains("/proc/sys/kernel/random/boot_id: No such file"))
        #expect(failed.errors.contains("remove ProcSubset=pid"))
    }
}
