// The progress that `spoolgate-upload` shows on terminals and as JSON.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("The client's command on a terminal")
struct UploadTerminalTests {
    // Long because the line is shown during a slow upload for each width.
    @Test("the line is shorter than the terminal's width", arguments: [200, 80, 40, 20, 9, 3])
    func widths(columns: Int) throws {
        let world = try UploadCommandWorld()
        _ = try world.sandbox.randomFile(4 << 20, "a-film-with-a-long-name.mkv")
        let shown = try world.onTerminal(
            """
            stty cols \(columns) rows 24; cd '\(world.sandbox.directory.path())'
            $program --limit-rate 2MiB a-film-with-a-long-name.mkv '\(world.url("film.mkv"))' \
                >answer; echo "ended $?"
            """
        )
        #expect(shown.output.contains("ended 0"), "\(shown.output)")
        let frames = Self.frames(shown.output)
        #expect(frames.count >= 3)
        for frame in frames {
            #expect(frame.count < columns, "\(frame)")
            #expect(!frame.contains("\u{1b}"))
        }
        if columns >= 80 {
            #expect(frames.contains { $0.contains("[") && $0.contains("MiB/s") })
            #expect(shown.output.contains("a-film-with-a-long-name.mkv: 4.0MiB uploaded in "))
        }
        if columns >= 9 { #expect(frames.contains { $0.contains("%") }) }
    }

    /// Without the final control sequence.
    private static func frames(_ output: String) -> [String] {
        output.components(separatedBy: "\r").filter { $0.hasSuffix("\u{1b}[J") }
            .map { String($0.dropLast(3)) }.filter { !$0.isEmpty }
    }

    @Test("a narrower terminal leaves no part of the previous line")
    func narrower() throws {
        let world = try UploadCommandWorld()
        _ = try world.sandbox.randomFile(6 << 20, "film.mkv")
        let shown = try world.onTerminal(
            """
            stty cols 120 rows 24; cd '\(world.sandbox.directory.path())'
            $program --limit-rate 2MiB film.mkv '\(world.url("film.mkv"))' >answer &
            while ! grep -q '^token: ' state/spoolgate-upload/* 2>/dev/null; do :; done
            while ! stty size | grep -q ' 30$'; do stty cols 30; done
            wait $!; echo "ended $?"
            """
        )
        #expect(shown.output.contains("ended 0"), "\(shown.output)")
        let frames = Self.frames(shown.output)
        #expect(frames.last.map { $0.count < 30 } ?? false)
        // A wider line wraps, so the next one starts some rows above.
        let wide = frames.map(\.count).max() ?? 0
        #expect(wide < 30 || shown.output.contains("\u{1b}[\((wide - 1) / 30)A"))
    }

    @Test("without a terminal, progress is JSON lines or nothing")
    func json() throws {
        let world = try UploadCommandWorld()
        let path = try world.sandbox.randomFile(4 << 20).url.path()
        let told = try world.run("--progress", "json", path, world.url("a.bin"))
        #expect(told.status == 0, "\(told.errors)")
        let events = try told.errors.split(separator: "\n").map {
            try #require(JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: Any])
        }
        #expect(events.last?["event"] as? String == "end")
        #expect(events.last?["exit"] as? Int == 0)
        #expect(events.last?["status"] as? Int == 201)
        let progress = events.filter { $0["event"] as? String == "progress" }
        #expect(progress.last?["received"] as? Int == 4 << 20)
        #expect(progress.last?["total"] as? Int == 4 << 20)
        let quiet = try world.run(path, world.url("b.bin"))
        #expect(quiet.status == 0 && quiet.errors.isEmpty)
    }
}
