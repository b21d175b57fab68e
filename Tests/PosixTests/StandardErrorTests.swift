// The check whether standard error goes to the journal.

import Foundation
import SpoolgatePosix
import Testing

@Suite struct StandardErrorTests {
    @Test("standard error is the journal's only if JOURNAL_STREAM names it")
    func journal() {
        var status = stat()
        #expect(fstat(STDERR_FILENO, &status) == 0)
        let right = "\(status.st_dev):\(status.st_ino)"
        func isJournal(_ stream: String?) -> Bool {
            StandardError { name in name == "JOURNAL_STREAM" ? stream : nil }.isJournal
        }
        #expect(isJournal(right))
        let wrong = [
            nil, "", ":", "\(status.st_dev)", "\(status.st_dev):\(status.st_ino + 1)",
            "\(status.st_dev + 1):\(status.st_ino)", right + ":", " " + right,
        ]
        for stream in wrong { #expect(!isJournal(stream), "\(stream ?? "none")") }
    }

    @Test("a precise time is a time with milliseconds")
    func preciseTime() {
        let time = WallTime.preciseNow
        #expect(time.wholeMatch(of: /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/) != nil, "\(time)")
    }
}
