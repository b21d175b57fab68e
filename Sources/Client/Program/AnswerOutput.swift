// The server's answer, on standard output.
//
// The invariant: on a terminal nothing of it moves the cursor.

import Glibc
import ResumableUpload
import SpoolgatePosix
import SpoolgateTextFormats

/// Writes answers.
enum AnswerOutput {
    /// Writes the content: as it is, and on a terminal as text that ends its last line.
    static func write(_ answer: Transfer.Answer) {
        guard Terminal.output.isThere else {
            write(answer.content)
            return
        }
        let lines = String(decoding: answer.content, as: UTF8.self)
            .split(separator: "\n", omittingEmptySubsequences: false)
            .map { String($0).forTerminal }
        let text = lines.joined(separator: "\n")
        if !text.isEmpty { write(Array((text.hasSuffix("\n") ? text : text + "\n").utf8)) }
    }

    /// Writes all bytes; false where nobody takes them.
    @discardableResult
    static func write(_ bytes: [UInt8]) -> Bool {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes {
                Glibc.write(STDOUT_FILENO, $0.baseAddress, $0.count)
            }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return false }
            rest = rest.dropFirst(count)
        }
        return true
    }
}
