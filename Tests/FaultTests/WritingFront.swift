// A web server that writes content into the spool itself: a process of the machine, so each of its calls can fail, be
// short, or be its last.
//
// Invariant: it writes only within the granted limit, after the existing content.

import SpoolgateExchange
import SpoolgatePosix
import Synchronization

final class WritingFront: Sendable {
    private struct State: ~Copyable {
        var file: Descriptor?
        var offset: Int64 = 0
        var limit = LaneLimit(count: 0, restFollows: false)
        var count: Int64 = 0
    }

    private let disk: Disk
    private let isDead: @Sendable () -> Bool
    private let state = Mutex(State())

    init(_ machine: FaultyMachine) {
        let process = machine.start()
        disk = machine.disk(of: process)
        isDead = { machine.isDead(process) }
    }

    var count: Int64 { state.withLock { $0.count } }

    func take(_ file: consuming Descriptor, at offset: Int64, _ limit: LaneLimit) {
        var file: Descriptor? = file
        state.withLock { state in
            state.file = file.take()
            (state.offset, state.limit) = (offset, limit)
        }
    }

    func close() { state.withLock { $0.file = nil } }

    /// Returns the report (nil if the process crashed) and the rest of the part.
    func write(_ part: [UInt8]) -> (LaneReport?, rest: [UInt8]) {
        state.withLock { state in
            guard let file = state.file.take() else { return (nil, []) }
            let fits = Int(min(Int64(part.count), state.limit.count - state.count))
            var position = state.offset + state.count
            var errno: Int32 = 0
            let fitting = Array(part[..<fits])
            do throws(SystemError) {
                try disk.write(
                    fitting.span.bytes,
                    to: file,
                    at: &position,
                    subject: "content"
                )
            } catch {
                errno = error.errno
            }
            state.count = position - state.offset
            guard !isDead() else { return (nil, []) }
            guard errno == 0, fits == part.count else {
                precondition(errno != 0 || state.limit.restFollows, "a final limit was exceeded")
                return (.ended(state.count, errno: errno), Array(part[fits...]))
            }
            state.file = consume file
            return (.written(state.count), [])
        }
    }
}
