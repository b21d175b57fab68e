// The error of the benchmark: something did not work.
//
// A slow figure is never a failure; a wrong status, a lost byte or a process that would not start
// is. Every failure carries one sentence that says what was attempted on what.

import Glibc

/// Something did not work; the benchmark ends with a status other than 0.
struct BenchFailure: Error, CustomStringConvertible {
    /// One sentence: what was attempted on what, and what came of it.
    let description: String

    /// Makes a failure from its sentence.
    init(_ description: String) {
        self.description = description
    }

    /// Makes a failure of a system call, with `errno`'s text.
    init(call: String, on subject: String = "", code: Int32 = errno) {
        let text = String(cString: strerror(code))
        description = subject.isEmpty ? "\(call): \(text)" : "\(call) \(subject): \(text)"
    }
}

/// Writes one line to standard error, at once.
func note(_ line: String) {
    let bytes = Array((line + "\n").utf8)
    _ = write(STDERR_FILENO, bytes, bytes.count)
}
