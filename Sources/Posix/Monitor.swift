// A value that threads share, with waiting: a mutex and a condition variable.
//
// It guards data, never I/O: a body must not make a call that can block, and must not use the same
// monitor again. Invariant: no body ever runs while another one does.

import Glibc

/// A mutex-guarded value on whose changes threads can wait.
///
/// Sendable without the compiler's proof because `value` and `waiting` are touched only between
/// locking and unlocking `mutex`, and the C objects never move.
package final class Monitor<Value>: @unchecked Sendable {
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private let changed: UnsafeMutablePointer<pthread_cond_t>
    private var value: Value
    private var waiting = 0

    /// Guards `value`.
    package init(_ value: sending Value) {
        self.value = value
        mutex = .allocate(capacity: 1)
        mutex.initialize(to: pthread_mutex_t())
        changed = .allocate(capacity: 1)
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
        changed.deallocate()
        pthread_mutex_destroy(mutex)
        mutex.deallocate()
    }

    /// Runs `body` with the value, alone, and wakes every waiting thread afterwards.
    package func update<R, E: Error>(_ body: (inout Value) throws(E) -> R) throws(E) -> R {
        pthread_mutex_lock(mutex)
        defer { unlockAndWake() }
        return try body(&value)
    }

    /// Waits until `body` gives a result.
    ///
    /// `body` is called with the value at once and after every update; nil when `deadline` comes
    /// first. A result counts as an update: it wakes the other waiting threads.
    package func wait<R>(until deadline: Deadline, _ body: (inout Value) -> R?) -> R? {
        pthread_mutex_lock(mutex)
        defer { unlockAndWake() }
        var instant = deadline.timespec
        while true {
            if let result = body(&value) { return result }
            waiting += 1
            let status = pthread_cond_timedwait(changed, mutex, &instant)
            waiting -= 1
            // A last look: an update and the deadline may have come together.
            if status == ETIMEDOUT { return body(&value) }
        }
    }

    private func unlockAndWake() {
        if waiting > 0 { pthread_cond_broadcast(changed) }
        pthread_mutex_unlock(mutex)
    }
}
