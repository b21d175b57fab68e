// The content of the server's response, on standard output.
//
// Invariant: the content never moves the cursor of a terminal.

import Glibc
import ResumableUpload
import SpoolgatePosix
import SpoolgateTextFormats

enum ResponseOutput {
    /// Writes the content unchanged or, on a terminal, as printable text with a line end.
    static func write(_ response: Transfer.Response) {
        guard Terminal.output.isThere else {
            write(response.content)
            return
        }
        let lines = String(decoding: response.content, as: UTF8.self)
            .split(separator: "\n", omittingEmptySubsequences: false)
            .map { String($0).forTerminal }
        let text = lines.joined(separator: "\n")
        if !text.isEmpty { write(Array((text.hasSuffix("\n") ? text : text + "\n").utf8)) }
    }

    /// Writes all bytes; returns false if standard output is closed or a write fails.
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
