// A value that threads share, with waiting: a mutex and a condition variable.
//
// It guards data, never I/O: a body must not make a call that can block, and must not use the same
// monitor again. Invariant: no body ever runs while another one does.

import Glibc

/// A mutex-guarded value on whose changes threads can wait.
///
/// Sendable without the compiler's proof because `value` and `waiting` are touched only between
/// locking and unlocking `mutex`, and the C objects never move. For the same reason `value` is behind a pointer:
/// for a property the compiler would have every access checked a second time. What callers do with it is inlined,
/// so that nothing of its type is looked up at run time.
@usableFromInline package final class Monitor<Value: ~Copyable>: @unchecked Sendable {
    /// The three lie in one piece of memory, the value behind the others.
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private let changed: UnsafeMutablePointer<pthread_cond_t>
    @usableFromInline let value: UnsafeMutablePointer<Value>
    private var waiting = 0

    /// Guards `value`.
    package init(_ value: consuming sending Value) {
        let alignment = max(
            MemoryLayout<pthread_mutex_t>.alignment,
            MemoryLayout<pthread_cond_t>.alignment,
            MemoryLayout<Value>.alignment
        )
        func end(_ count: Int) -> Int { (count + alignment - 1) / alignment * alignment }
        let placeOfChanged = end(MemoryLayout<pthread_mutex_t>.size)
        let placeOfValue = placeOfChanged + end(MemoryLayout<pthread_cond_t>.size)
        let memory = UnsafeMutableRawPointer.allocate(
            byteCount: placeOfValue + MemoryLayout<Value>.size,
            alignment: alignment
        )
        mutex = memory.bindMemory(to: pthread_mutex_t.self, capacity: 1)
        changed = (memory + placeOfChanged).bindMemory(to: pthread_cond_t.self, capacity: 1)
        self.value = (memory + placeOfValue).bindMemory(to: Value.self, capacity: 1)
        self.value.initialize(to: value)
        mutex.initialize(to: pthread_mutex_t())
        changed.initialize(to: pthread_cond_t())
        var attributes = pthread_condattr_t()
        pthread_condattr_init(&attributes)
        // Deadlines are monotonic: setting the clock must not end or extend a wait.
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
        let status = (pthread_mutex_init(mutex, nil), pthread_cond_init(changed, &attributes))
        pthread_condattr_destroy(&attributes)
        precondition(status == (0, 0), "the system has no room for a mutex")
    }

    deinit {
        pthread_cond_destroy(changed)
        pthread_mutex_destroy(mutex)
        value.deinitialize(count: 1)
        UnsafeMutableRawPointer(mutex).deallocate()
    }

    /// Runs `body` with the value, alone, and wakes every waiting thread afterwards.
    @inlinable
    package func update<R, E: Error>(_ body: (inout Value) throws(E) -> R) throws(E) -> R {
        lock()
        defer { unlockAndWake() }
        return try body(&value.pointee)
    }

    /// Runs `body` with the value, alone, and wakes nobody: for a change that no waiting thread waits for.
    @inlinable
    package func updateQuietly<R: ~Copyable, E: Error>(
        _ body: (inout Value) throws(E) -> R
    ) throws(E) -> R {
        lock()
        defer { unlock() }
        return try body(&value.pointee)
    }

    /// Waits until `body` gives a result.
    ///
    /// `body` is called with the value at once and after every update, and changes it only where it gives
    /// a result; nil when `deadline` comes first.
    ///
    /// - Parameters:
    ///   - deadline: when to wait no longer.
    ///   - isQuiet: whether a result is no update; otherwise it wakes the other waiting threads.
    ///   - body: looks at the value.
    /// - Returns: the result, or nil.
    package func wait<R>(
        until deadline: Deadline,
        isQuiet: Bool = false,
        _ body: (inout Value) -> R?
    ) -> R? {
        pthread_mutex_lock(mutex)
        var instant = deadline.timespec
        var result = body(&value.pointee)
        var status: Int32 = 0
        // After the deadline a last look: an update may have come with it.
        while result == nil, status != ETIMEDOUT {
            waiting += 1
            status = pthread_cond_timedwait(changed, mutex, &instant)
            waiting -= 1
            result = body(&value.pointee)
        }
        // Thousands may wait: woken by each of them whose time is up, they would do nothing else.
        if result == nil || isQuiet { pthread_mutex_unlock(mutex) } else { unlockAndWake() }
        return result
    }

    @usableFromInline func lock() { pthread_mutex_lock(mutex) }

    @usableFromInline func unlock() { pthread_mutex_unlock(mutex) }

    @usableFromInline func unlockAndWake() {
        if waiting > 0 { pthread_cond_broadcast(changed) }
        pthread_mutex_unlock(mutex)
    }
}
