// Owned file descriptors.
//
// Invariant: while the value exists, the number is open and refers to the same file.

import CSpoolgateLinux
import Glibc

/// An owned file descriptor, closed exactly once on every path.
package struct Descriptor: ~Copyable, Sendable {
    /// The descriptor's number, for system calls; do not store it.
    package let number: Int32

    /// Takes ownership of an open descriptor.
    package init(owning number: Int32) {
        precondition(number >= 0, "a descriptor must be open")
        self.number = number
    }

    /// Closes the descriptor and throws any error that the kernel reports only on close(2).
    ///
    /// The descriptor is closed even if an error is thrown.
    package consuming func close() throws(SystemError) {
        let number = self.number
        discard self
        // Linux frees the number even on EINTR, so close must not be called again.
        if Glibc.close(number) != 0 && errno != EINTR {
            throw SystemError("close", on: "descriptor \(number)")
        }
    }

    /// Gives up ownership and returns the number, which the caller must close.
    package consuming func release() -> Int32 {
        let number = self.number
        discard self
        return number
    }

    /// Enlarges a pipe to at least `count` bytes, so that its two sides wake each other less often.
    ///
    /// Does nothing if `number` is not a pipe or the system does not allow the size.
    package static func widenPipe(_ number: Int32, to count: Int) {
        _ = spoolgate_widen_pipe(number, Int32(clamping: count))
    }

    deinit { _ = Glibc.close(number) }
}

/// A pipe, both ends close-on-exec.
struct Pipe: ~Copyable {
    let source: Descriptor
    let sink: Descriptor

    /// `subject` names the pipe's purpose in error messages.
    init(for subject: String) throws(SystemError) {
        var ends: [Int32] = [-1, -1]
        try SystemError.check(spoolgate_pipe(&ends), "pipe2", on: subject)
        source = Descriptor(owning: ends[0])
        sink = Descriptor(owning: ends[1])
    }
}
