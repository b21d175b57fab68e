// The uploads that this process has locked.
//
// The kernel's locks exclude other processes; with this table, threads of one process request each other's release and
// wait without polling. Invariants: an upload has at most one lock; the newest of the waiting requests gets the lock
// next; a change to an upload without waiters wakes no thread.

package import SpoolgatePosix
import SpoolgateUploadProtocol

/// The uploads that requests of this process have locked or are waiting for; thread-safe.
final class UploadLocks: Sendable {
    /// The lock of one upload; a class, because moving a creation costs more than allocating an object.
    fileprivate final class Entry {
        let number: UInt64
        let requestRelease: @Sendable () -> Void
        /// The upload's creation, or nil until the record has been read.
        var creation: UploadCreation?
        /// Whether the kernel's lock on the record is held too; until then, the request is waiting for that lock.
        var isInUse = false
        var isDelivering = false
        var isReleaseRequested = false

        init(
            _ number: UInt64,
            creation: UploadCreation? = nil,
            requestRelease: @escaping @Sendable () -> Void
        ) {
            self.number = number
            self.creation = creation
            self.requestRelease = requestRelease
        }

        /// Whether the holder is receiving content and can still be asked to release the upload.
        var isReceiving: Bool { isInUse && !isDelivering && !isReleaseRequested }
    }

    fileprivate struct Table {
        var lastNumber: UInt64 = 0
        var entries: [UploadID: Entry] = [:]
        var waiting: [UploadID: Set<UInt64>] = [:]

        mutating func remove(_ number: UInt64, waitingFor id: UploadID) {
            waiting[id]?.remove(number)
            if waiting[id]?.isEmpty == true { waiting[id] = nil }
        }

        func isAwaited(_ id: UploadID) -> Bool { waiting[id] != nil }

        mutating func lock(_ id: UploadID, _ entry: Entry, in locks: UploadLocks) -> UploadLock {
            entries[id] = entry
            return UploadLock(id: id, entry: entry, locks: locks)
        }
    }

    fileprivate let table = Monitor(Table())

    enum Locking {
        case locked(UploadLock)
        case notAdmitted
        case busy
    }

    private enum Step {
        case end(Locking)
        case request(@Sendable () -> Void)
    }

    /// Locks an upload; if a request of this process is receiving it, requests its release and waits.
    ///
    /// `admits` and `requestRelease` are as in `Spool.lock`; `requestRelease` is called from another thread.
    func lock(
        _ id: UploadID,
        until limit: WaitLimit,
        admits: (UploadCreation) -> Bool,
        requestRelease: @escaping @Sendable () -> Void
    ) -> Locking {
        if let free = lockFree(id, { Entry($0, requestRelease: requestRelease) }) {
            return .locked(free)
        }
        let number = table.updateQuietly { table in
            table.lastNumber += 1
            table.waiting[id, default: []].insert(table.lastNumber)
            return table.lastNumber
        }
        while true {
            let step = table.wait(until: limit.deadline, isQuiet: true) { table in
                self.step(&table, id, number, admits: admits, requestRelease: requestRelease)
            }
            switch step {
            case .request(let request):
                // The caller's code must not run inside the monitor.
                request()
                wake()
            case .end(let locking):
                if case .locked = locking { return locking }
                stopWaiting(id, number)
                return locking
            case nil:
                guard limit.hasPassed else { continue }
                stopWaiting(id, number)
                return .busy
            }
        }
    }

    private func step(
        _ table: inout Table,
        _ id: UploadID,
        _ number: UInt64,
        admits: (UploadCreation) -> Bool,
        requestRelease: @escaping @Sendable () -> Void
    ) -> Step? {
        guard let entry = table.entries[id] else {
            guard table.waiting[id]?.max() == number else { return nil }
            table.remove(number, waitingFor: id)
            let entry = Entry(number, requestRelease: requestRelease)
            return .end(.locked(table.lock(id, entry, in: self)))
        }
        guard let creation = entry.creation else { return nil }
        guard admits(creation) else { return .end(.notAdmitted) }
        guard !entry.isDelivering, !entry.isReleaseRequested, entry.number < number else {
            return nil
        }
        entry.isReleaseRequested = true
        return .request(entry.requestRelease)
    }

    private func stopWaiting(_ id: UploadID, _ number: UInt64) {
        let isFree = table.updateQuietly { table in
            table.remove(number, waitingFor: id)
            return table.entries[id] == nil && table.isAwaited(id)
        }
        if isFree { wake() }
    }

    fileprivate func change(_ id: UploadID, _ body: (inout Table) -> Void) {
        let isAwaited = table.updateQuietly { table in
            body(&table)
            return table.isAwaited(id)
        }
        if isAwaited { wake() }
    }

    private func wake() { table.update { _ in } }

    func lockNew(
        _ creation: UploadCreation,
        requestRelease: @escaping @Sendable () -> Void
    ) -> UploadLock {
        let made = lockFree(creation.id) { number in
            let entry = Entry(number, creation: creation, requestRelease: requestRelease)
            entry.isInUse = true
            return entry
        }
        guard let made else { preconditionFailure("an identity is never used twice") }
        return made
    }

    /// Locks an upload, or returns nil if it is locked or a request is waiting for it.
    ///
    /// No request can ask for this lock's release.
    func tryLock(_ id: UploadID) -> UploadLock? {
        lockFree(id) { number in
            let entry = Entry(number, requestRelease: {})
            entry.isDelivering = true
            return entry
        }
    }

    /// Locks an upload, or returns nil if it is locked or a request is waiting for it.
    private func lockFree(_ id: UploadID, _ make: (UInt64) -> Entry) -> UploadLock? {
        table.updateQuietly { table in
            guard table.entries[id] == nil, !table.isAwaited(id) else { return nil }
            table.lastNumber += 1
            return table.lock(id, make(table.lastNumber), in: self)
        }
    }

    /// Returns the uploads being received whose release has not been requested.
    func receiving() -> [UploadID] {
        table.updateQuietly { table in
            table.entries.filter { $0.value.isReceiving }.map(\.key)
        }
    }

    /// Requests the release of an upload, for another process or at shutdown, if it is being received.
    func requestRelease(of id: UploadID) {
        let request = table.updateQuietly { table -> (@Sendable () -> Void)? in
            guard let entry = table.entries[id], entry.isReceiving else { return nil }
            entry.isReleaseRequested = true
            return entry.requestRelease
        }
        guard let request else { return }
        // The caller's code must not run inside the monitor.
        request()
        wake()
    }
}

/// The lock of one upload in this process; used by one thread.
struct UploadLock {
    let id: UploadID
    /// Used only inside the table's monitor.
    fileprivate let entry: UploadLocks.Entry
    fileprivate let locks: UploadLocks

    /// Has no effect if the upload is already unlocked.
    func unlock() {
        locks.change(id) { table in
            if table.entries[id] === entry { table.entries[id] = nil }
        }
    }

    /// Sets the creation, so that waiting requests can decide whether they may use the upload.
    func setCreation(_ creation: UploadCreation) {
        locks.change(id) { _ in entry.creation = creation }
    }

    /// Makes newer requests wait for the lock instead of requesting its release.
    func setDelivering() { locks.table.updateQuietly { _ in entry.isDelivering = true } }

    func setInUse() { locks.table.updateQuietly { _ in entry.isInUse = true } }

    /// Waits until the release is requested; returns false if `deadline` passes first.
    func isReleaseRequested(until deadline: Deadline) -> Bool {
        locks.table.wait(until: deadline, isQuiet: true) { _ in
            entry.isReleaseRequested ? true : nil
        } ?? false
    }
}

// MARK: Fence

// Detects that a shared file system has fenced off this host.
//
// A fenced host finds names missing, and after a first failed sync later syncs succeed. The first sign therefore ends
// the daemon, which sends no more responses; another node continues with its uploads. Invariant: nothing here affects a
// spool that is not shared.

/// The action that ends the process when the file system of a shared spool no longer accepts this host.
///
/// Thread-safe.
final class Fence: Sendable {
    private struct Alarm {
        /// The action, or nil if none is set or the action has started.
        var action: (@Sendable (SystemError) -> Void)?
        var isRaised = false
    }

    private let alarm = Monitor(Alarm())

    func set(_ action: @escaping @Sendable (SystemError) -> Void) {
        alarm.update { $0.action = action }
    }

    /// Runs the action because of `error`; if another thread is already running the action, waits for that thread.
    func note(_ error: SystemError) {
        let action = alarm.update { alarm in
            defer { alarm = Alarm(isRaised: alarm.isRaised || alarm.action != nil) }
            return alarm.action
        }
        guard let action else {
            // This thread must send no response either.
            while alarm.update(\.isRaised) { Thread.pause(.seconds(1)) }
            return
        }
        action(error)
        alarm.update { $0.isRaised = false }
    }
}

extension Spool {
    package var isShared: Bool { node != nil }

    /// Sets the action to run when a shared file system no longer accepts this host.
    ///
    /// The action runs at most once, on any thread, and should end the process immediately.
    package func onFenced(_ action: @escaping @Sendable (SystemError) -> Void) { fence.set(action) }

    /// Whether this process may no longer open the file `format`, which every daemon has read before.
    ///
    /// The CephFS kernel client fails every call with EACCES if its session ended during a network outage. Changed
    /// permissions of a single upload do not count.
    var isClosedToUs: Bool {
        do throws(SystemError) {
            _ = try OpenFile.open("format", in: layout.root, forWriting: false)
            return false
        } catch {
            return error.isDenial
        }
    }

    /// Checks that a shared spool still accepts this process; has no effect in other spools.
    ///
    /// Call this before reporting that an upload is missing or its offset was already durable, unless this process has
    /// just written to the disk.
    ///
    /// - Throws: `.disk` if the file system no longer accepts this host, or another node considers this process
    ///   crashed.
    package func checkMembership() throws(SpoolError) {
        guard isShared else { return }
        try onDisk { () throws(SystemError) in
            guard try layout.root.status(of: "format") != nil else {
                throw layout.root.gone("format")
            }
            // A command has no file in `daemons`.
            guard let own = daemons.own else { return }
            guard try layout.daemons.status(of: own.name) != nil else {
                throw layout.daemons.gone(own.name)
            }
        }
    }
}

extension Directory {
    fileprivate func gone(_ name: String) -> SystemError {
        SystemError(call: "openat", subject: path(of: name), errno: SystemError.fenced)
    }
}
