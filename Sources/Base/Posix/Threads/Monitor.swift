// Values shared by threads.
//
// Invariant: bodies never run concurrently. A body must not block or use the same monitor again.

import Glibc

/// A mutex-guarded value on whose changes threads can wait.
///
/// Unchecked Sendable because `value` and `waiting` are accessed only under `mutex`, and the C objects never move.
/// Pointers instead of properties avoid an exclusivity check at each access. The accessors are inlined, so that the
/// value's type needs no lookup at run time.
@usableFromInline package final class Monitor<Value: ~Copyable>: @unchecked Sendable {
    /// The start of the allocation that all three pointers share.
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private let changed: UnsafeMutablePointer<pthread_cond_t>
    @usableFromInline let value: UnsafeMutablePointer<Value>
    private var waiting = 0

    /// Creates a monitor that guards `value`.
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
        // Deadlines are monotonic, so that a change of the clock cannot end or extend a wait.
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
        let status = (pthread_mutex_init(mutex, nil), pthread_cond_init(changed, &attributes))
        pthread_condattr_destroy(&attributes)
        precondition(status == (0, 0), "the system cannot create a mutex")
    }

    deinit {
        pthread_cond_destroy(changed)
        pthread_mutex_destroy(mutex)
        value.deinitialize(count: 1)
        UnsafeMutableRawPointer(mutex).deallocate()
    }

    /// Runs `body` with exclusive access to the value, then wakes all waiting threads.
    @inlinable
    package func update<R, E: Error>(_ body: (inout Value) throws(E) -> R) throws(E) -> R {
        lock()
        defer { unlockAndWake() }
        return try body(&value.pointee)
    }

    /// Runs `body` with exclusive access to the value, without waking waiting threads.
    ///
    /// Use this function for reading, and for changes that no thread is waiting for.
    @inlinable
    package func updateQuietly<R: ~Copyable, E: Error>(
        _ body: (inout Value) throws(E) -> R
    ) throws(E) -> R {
        lock()
        defer { unlock() }
        return try body(&value.pointee)
    }

    /// Waits until `body` returns a result.
    ///
    /// `body` is called at once and after each update. `body` must return nil to continue waiting, and may change the
    /// value only if it returns a result.
    ///
    /// If `isQuiet` is true, a result does not wake the other waiting threads, unlike `update`.
    ///
    /// - Returns: the result, or nil if the deadline passed.
    package func wait<R>(
        until deadline: Deadline,
        isQuiet: Bool = false,
        _ body: (inout Value) -> R?
    ) -> R? {
        pthread_mutex_lock(mutex)
        var instant = deadline.timespec
        var result = body(&value.pointee)
        var status: Int32 = 0
        // `body` is called once more after the deadline, because an update may have arrived at the same time.
        while result == nil, status != ETIMEDOUT {
            waiting += 1
            status = pthread_cond_timedwait(changed, mutex, &instant)
            waiting -= 1
            result = body(&value.pointee)
        }
        // A timeout must not wake the other threads, because thousands of threads would constantly wake each other.
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
