// Threads with a name and a small stack.
//
// A thread is detached, so its body reports the end through a `Monitor`. A thread inherits its creator's signal mask.

import CSpoolgateLinux
import Glibc

/// Starts threads and tunes their memory.
package enum Thread {
    /// Tunes malloc for many threads with little memory each.
    ///
    /// Call it before the first thread starts.
    package static func prepareProcess() { spoolgate_tune_memory() }

    /// Releases the heap's free pages to the system, which takes some milliseconds.
    ///
    /// Thousands of threads leave the heap fragmented. Without this call, a heap with 6 MB in use kept 113 MB after a
    /// peak, and 11 to 20 MB more after each further peak.
    package static func releaseHeap() { spoolgate_release_heap() }

    /// Releases the unused part of the calling thread's stack to the system.
    ///
    /// Call it in a thread that is about to wait for a long time after deeply nested calls.
    package static func releaseStack() { spoolgate_release_stack() }

    /// Blocks the calling thread for the whole duration, despite signals.
    package static func pause(_ duration: Duration) {
        let nothing = Monitor(())
        let _: Void? = nothing.wait(until: .after(duration)) { _ in nil }
    }

    /// The number of processors that are online.
    package static var processorCount: Int { Int(sysconf(Int32(_SC_NPROCESSORS_ONLN))) }

    /// Starts a detached thread; throws an error if the system has no room for the thread.
    ///
    /// `name` must have at most 15 bytes. `stackSize` is in bytes. Only touched pages use memory.
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
