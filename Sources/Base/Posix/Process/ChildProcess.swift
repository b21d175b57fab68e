// Runs programs without a shell and captures their output.
//
// Invariant: after the end of the process is reported, or the value is destroyed, its group has no processes left.

import CSpoolgateLinux
import Glibc

/// A child process in its own process group.
///
/// Only one thread may use the value; `deinit` kills the process.
///
/// The child inherits no descriptor, signal mask, signal disposition or environment variable.
package final class ChildProcess {
    /// The way a process ended.
    package enum End: Sendable, Equatable {
        /// The process exited with this status, from 0 to 255.
        case exited(Int32)
        /// This signal ended the process.
        case signalled(Int32)
    }

    /// The start of standard output, at most `limit` bytes.
    package private(set) var output: [UInt8] = []
    /// The start of standard error, at most `limit` bytes.
    package private(set) var errors: [UInt8] = []

    private let process: pid_t
    private let handle: Descriptor
    private let outputEnd: Descriptor
    private let errorsEnd: Descriptor
    private let limit: Int
    private var isOutputOpen = true
    private var isErrorsOpen = true
    private var end: End?
    /// The maximum wait for a killed process, which may hang in the kernel.
    private static let reapTimeout = Duration.seconds(10)

    /// Starts the program `command`, an absolute path and arguments.
    ///
    /// The program gets only the variables in `environment`. At most `limit` bytes of each output are kept. The rest is
    /// read and discarded.
    ///
    /// - Throws: `SystemError` with the program as its subject.
    package init(
        _ command: [String],
        environment: [(name: String, value: String)],
        limit: Int
    ) throws(SystemError) {
        guard let program = command.first else { preconditionFailure("a command needs a program") }
        let outputPipe = try Pipe(for: program)
        let errorsPipe = try Pipe(for: program)
        for source in [outputPipe.source.number, errorsPipe.source.number] {
            try SystemError.check(fcntl(source, F_SETFL, O_NONBLOCK), "fcntl", on: program)
        }
        var process: pid_t = 0
        let variables = environment.map { "\($0.name)=\($0.value)" }
        let status = Self.withStrings(command) { arguments in
            Self.withStrings(variables) { variables in
                spoolgate_spawn(
                    program,
                    arguments,
                    variables,
                    outputPipe.sink.number,
                    errorsPipe.sink.number,
                    &process
                )
            }
        }
        guard status == 0 else {
            throw SystemError(call: "posix_spawn", subject: program, errno: status)
        }
        let handle = spoolgate_open_process(process)
        guard handle >= 0 else {
            let error = SystemError("pidfd_open", on: program)
            Glibc.kill(-process, SIGKILL)
            _ = spoolgate_reap(process)
            throw error
        }
        self.process = process
        self.handle = Descriptor(owning: handle)
        outputEnd = outputPipe.source
        errorsEnd = errorsPipe.source
        self.limit = limit
    }

    deinit { if end == nil { kill() } }

    /// Waits for the process to end; returns nil if `deadline` passes first.
    ///
    /// When the process has ended, the rest of its group is killed, so that no process keeps the outputs open.
    package func wait(until deadline: Deadline) -> End? {
        while end == nil {
            let left = deadline.remaining
            // Rounded up, because a timeout of zero would spin until the deadline.
            let timeout = left.wholeMilliseconds + (left > .zero ? 1 : 0)
            if waitOnce(Int32(clamping: timeout)) {
                takeEnd()
            } else if deadline.hasPassed {
                return nil
            }
        }
        return end
    }

    /// Sends SIGTERM to the process group, waits up to `grace` for the process to end, and kills the rest of the group.
    package func terminate(grace: Duration) {
        guard end == nil else { return }
        Glibc.kill(-process, SIGTERM)
        if wait(until: .after(grace)) == nil { kill() }
    }

    private func kill() {
        Glibc.kill(-process, SIGKILL)
        if wait(until: .after(Self.reapTimeout)) != nil { return }
        let process = process
        end = .signalled(SIGKILL)
        // Reaps the process when the kernel releases it. If no thread can start, the zombie remains.
        try? Thread.start(name: "reaper", stackSize: 64 * 1024) { _ = spoolgate_reap(process) }
    }

    /// Waits for the end or for output, and reads the output; returns true if the process has ended.
    private func waitOnce(_ milliseconds: Int32) -> Bool {
        // A closed output is left out, because it would always be readable.
        var polled = [
            handle.number, isOutputOpen ? outputEnd.number : -1,
            isErrorsOpen ? errorsEnd.number : -1,
        ].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
        guard poll(&polled, nfds_t(polled.count), milliseconds) > 0 else { return false }
        if polled[1].revents != 0 { isOutputOpen = Self.take(outputEnd, into: &output, limit) }
        if polled[2].revents != 0 { isErrorsOpen = Self.take(errorsEnd, into: &errors, limit) }
        return polled[0].revents != 0
    }

    private func takeEnd() {
        // Reads the last output, but only once, because processes of the group may still be writing.
        _ = Self.take(outputEnd, into: &output, limit)
        _ = Self.take(errorsEnd, into: &errors, limit)
        // The group is killed before the process is reaped, while their numbers cannot be reused.
        Glibc.kill(-process, SIGKILL)
        let status = spoolgate_reap(process)
        end = status >= 1_000 ? .signalled(status - 1_000) : .exited(status)
    }

    /// Reads the available bytes, at most a pipe's capacity; returns false at the end of the output.
    private static func take(
        _ source: borrowing Descriptor,
        into bytes: inout [UInt8],
        _ limit: Int
    ) -> Bool {
        withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 1) { buffer in
            for _ in 0..<32 {
                let count = read(source.number, buffer.baseAddress, buffer.count)
                if count < 0 { return errno == EAGAIN || errno == EINTR }
                if count == 0 { return false }
                bytes.append(contentsOf: buffer[..<min(count, limit - bytes.count)])
            }
            return true
        }
    }

    private static func withStrings<R>(
        _ strings: [String],
        _ body: (UnsafePointer<UnsafeMutablePointer<CChar>?>) -> R
    ) -> R {
        var pointers: [UnsafeMutablePointer<CChar>?] = strings.map { strdup($0) } + [nil]
        defer { for pointer in pointers { free(pointer) } }
        return pointers.withUnsafeMutableBufferPointer { list in
            guard let first = list.baseAddress else { preconditionFailure("the list has an end") }
            return body(UnsafePointer(first))
        }
    }
}
