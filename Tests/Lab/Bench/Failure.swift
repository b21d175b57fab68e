// The error of the benchmark: a wrong status, a lost byte or a process that does not start, but no slow figure.

import Glibc

struct BenchFailure: Error, CustomStringConvertible {
    /// One sentence: the operation, its object and the result.
    let description: String

    init(_ description: String) {
        self.description = description
    }

    init(call: String, on subject: String = "", code: Int32 = errno) {
        let text = String(cString: strerror(code))
        description = subject.isEmpty ? "\(call): \(text)" : "\(call) \(subject): \(text)"
    }
}

func note(_ line: String) {
    let bytes = Array((line + "\n").utf8)
    _ = write(STDERR_FILENO, bytes, bytes.count)
}
