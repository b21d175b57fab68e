// One open file descriptor, owned. Closed on every path, never twice.
//
// It knows nothing of what is behind the number. Invariant: as long as the value lives, the number
// is open and means what it meant when it was taken.

import CSpoolgateLinux
import Glibc

/// An owned file descriptor.
package struct Descriptor: ~Copyable, Sendable {
    /// The number, for calls made while the descriptor is borrowed; never to be kept.
    package let number: Int32

    /// Takes ownership of an open descriptor.
    package init(owning number: Int32) {
        precondition(number >= 0, "a descriptor must be open")
        self.number = number
    }

    /// Closes it and says whether the kernel still had an error to report (close(2)); the number is
    /// free in either case.
    package consuming func close() throws(SystemError) {
        let number = self.number
        discard self
        // Linux frees the number also when it reports EINTR, so it must not be repeated.
        if Glibc.close(number) != 0 && errno != EINTR {
            throw SystemError("close", on: "descriptor \(number)")
        }
    }

    /// Gives up ownership: the caller must close the number.
    package consuming func release() -> Int32 {
        let number = self.number
        discard self
        return number
    }

    /// Has the pipe behind `number` hold at least `count` bytes, so that its two sides wake each other less often.
    ///
    /// Nothing happens if there is no pipe behind it, or if the system does not allow that many.
    package static func widenPipe(_ number: Int32, to count: Int) {
        _ = spoolgate_widen_pipe(number, Int32(clamping: count))
    }

    deinit { _ = Glibc.close(number) }
}

/// A pipe, both ends close-on-exec.
struct Pipe: ~Copyable {
    /// Where it is read.
    let source: Descriptor
    /// Where it is written.
    let sink: Descriptor

    /// Makes a pipe; `subject` is what it is for.
    init(for subject: String) throws(SystemError) {
        var ends: [Int32] = [-1, -1]
        try SystemError.check(spoolgate_pipe(&ends), "pipe2", on: subject)
        source = Descriptor(owning: ends[0])
        sink = Descriptor(owning: ends[1])
    }
}
