// Client threads: start one, or run some side by side and wait for all.

import Glibc
import Synchronization

/// A thread's body, as an object that can travel through `pthread_create`.
private final class ThreadBody: Sendable {
    let run: @Sendable () -> Void

    init(_ run: @escaping @Sendable () -> Void) {
        self.run = run
    }
}

/// Starts a thread with a stack of 512 KiB.
///
/// - Throws: `BenchFailure` if the system has no thread to give.
@discardableResult
func startThread(_ run: @escaping @Sendable () -> Void) throws(BenchFailure) -> pthread_t {
    var attributes = pthread_attr_t()
    pthread_attr_init(&attributes)
    defer { pthread_attr_destroy(&attributes) }
    pthread_attr_setstacksize(&attributes, 512 << 10)
    let body = Unmanaged.passRetained(ThreadBody(run))
    var thread = pthread_t()
    let code = pthread_create(
        &thread,
        &attributes,
        { argument in
            if let argument {
                Unmanaged<ThreadBody>.fromOpaque(argument).takeRetainedValue().run()
            }
            return nil
        },
        body.toOpaque()
    )
    guard code == 0 else {
        body.release()
        throw BenchFailure(call: "pthread_create", code: code)
    }
    return thread
}

/// Runs `body` in `count` threads and waits for all of them.
///
/// - Returns: what each of them returned, in the order in which they ended.
/// - Throws: the first failure of any of them, after all have ended.
func sideBySide<Value: Sendable>(
    _ count: Int,
    _ body: @escaping @Sendable (Int) throws(BenchFailure) -> Value
) throws(BenchFailure) -> [Value] {
    let results = Results<Value>()
    var threads: [pthread_t] = []
    for index in 0..<count {
        threads.append(
            try startThread {
                do throws(BenchFailure) {
                    let value = try body(index)
                    results.values.withLock { $0.append(value) }
                } catch {
                    results.failure.withLock { $0 = $0 ?? error }
                }
            }
        )
    }
    for thread in threads { pthread_join(thread, nil) }
    if let failure = results.failure.withLock({ $0 }) { throw failure }
    return results.values.withLock { $0 }
}

/// Where the threads of one `sideBySide` leave what they have.
private final class Results<Value: Sendable>: Sendable {
    let values = Mutex<[Value]>([])
    let failure = Mutex<BenchFailure?>(nil)
}
