// Threads with a name and a small stack.
//
// They are detached: whoever needs to know of a thread's end lets its body say so in a `Monitor`.
// A thread inherits the signal mask of the one that starts it.

import CSpoolgateLinux
import Glibc

/// Starting threads.
package enum Thread {
    /// Sets memory up for many threads that each hold little; call it before the first one starts.
    package static func prepareProcess() { spoolgate_tune_memory() }

    /// Gives the heap's free pages back to the system, in some milliseconds.
    ///
    /// For the time after a busy one: what thousands of threads had lies scattered, and without this a
    /// heap of which 6 MB were in use kept 113 MB, and 11 to 20 MB more after each further busy time.
    package static func releaseHeap() { spoolgate_release_heap() }

    /// Gives the part of the calling thread's stack that is not in use back to the system.
    ///
    /// For a thread that is about to wait long, deep calls behind it.
    package static func releaseStack() { spoolgate_release_stack() }

    /// Lets the calling thread wait for a time that nothing shortens.
    package static func pause(_ duration: Duration) {
        let nothing = Monitor(())
        let _: Void? = nothing.wait(until: .after(duration)) { _ in nil }
    }

    /// Starts a detached thread.
    ///
    /// - Parameters:
    ///   - name: shown by `ps -L`, 15 bytes at most.
    ///   - stackSize: bytes; only pages touched cost memory.
    ///   - body: what it runs.
    /// - Throws: `SystemError` when the system has no room for another thread.
    package static func start(
        name: String,
        stackSize: Int = 256 * 1024,
        _ body: @escaping @Sendable () -> Void
    ) throws(SystemError) {
        var attributes = pthread_attr_t()
        pthread_attr_init(&attributes)
        defer { pthread_attr_destroy(&attributes) }
        pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
        let page = Int(sysconf(Int32(_SC_PAGESIZE)))
        let pages = (stackSize + page - 1) / page
        var status = pthread_attr_setstacksize(&attributes, pages * page)
        guard status == 0 else {
            throw SystemError(call: "pthread_attr_setstacksize", subject: name, errno: status)
        }
        let work = Unmanaged.passRetained(Work(name: name, body: body))
        var thread = pthread_t()
        status = pthread_create(&thread, &attributes, runWork, work.toOpaque())
        guard status == 0 else {
            work.release()
            throw SystemError(call: "pthread_create", subject: name, errno: status)
        }
    }
}

/// What a new thread is given.
private final class Work {
    let name: String
    let body: @Sendable () -> Void

    init(name: String, body: @escaping @Sendable () -> Void) {
        self.name = name
        self.body = body
    }
}

private func runWork(_ context: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
    guard let context else { return nil }
    let work = Unmanaged<Work>.fromOpaque(context).takeRetainedValue()
    spoolgate_name_thread(work.name)
    work.body()
    return nil
}
