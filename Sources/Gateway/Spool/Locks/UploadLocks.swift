// Which uploads this process has locked.
//
// The kernel's locks keep processes apart; this table lets threads of one process request each other's
// release and wait without polling. Invariants: an upload has at most one lock, and of those who wait
// for it the newest gets it; what happens to an upload that nobody waits for wakes nobody.

import SpoolgatePosix
import SpoolgateUploadProtocol

/// The table of locks.
///
/// Any thread.
final class UploadLocks: Sendable {
    /// A lock; held by reference, since a creation costs more to move than to have.
    fileprivate final class Entry {
        let number: UInt64
        let requestRelease: @Sendable () -> Void
        /// Known once the record has been read.
        var creation: UploadCreation?
        /// Whether the kernel's lock is held too, and no other process is waited for any more.
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

        /// Whether a request in another process may request its release.
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

        /// Takes a lock that is free.
        mutating func lock(_ id: UploadID, _ entry: Entry, in locks: UploadLocks) -> UploadLock {
            entries[id] = entry
            return UploadLock(id: id, entry: entry, locks: locks)
        }
    }

    fileprivate let table = Monitor(Table())

    /// How locking an upload ended.
    enum Locking {
        /// The caller has it.
        case locked(UploadLock)
        /// Its creation is not one that the caller may use.
        case notAdmitted
        /// It was not unlocked in time.
        case busy
    }

    private enum Step {
        case end(Locking)
        case request(@Sendable () -> Void)
    }

    /// Locks an upload; requests the release of an older lock that still receives.
    ///
    /// - Parameters:
    ///   - id: the upload.
    ///   - limit: when to give up.
    ///   - admits: whether the caller may use an upload with that creation; quick and without effect.
    ///   - requestRelease: how to ask the caller to unlock.
    /// - Returns: how it ended.
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
                // Outside the monitor: it is foreign code.
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

    /// Changes what is known of an upload; those who wait for it look again.
    fileprivate func change(_ id: UploadID, _ body: (inout Table) -> Void) {
        let isAwaited = table.updateQuietly { table in
            body(&table)
            return table.isAwaited(id)
        }
        if isAwaited { wake() }
    }

    /// Has all look who wait for anything here.
    private func wake() { table.update { _ in } }

    /// Locks an upload that is only now made.
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

    /// Locks an upload if nobody has; the release of this lock cannot be requested.
    func tryLock(_ id: UploadID) -> UploadLock? {
        lockFree(id) { number in
            let entry = Entry(number, requestRelease: {})
            entry.isDelivering = true
            return entry
        }
    }

    /// Locks an upload that nobody has or waits for.
    private func lockFree(_ id: UploadID, _ make: (UInt64) -> Entry) -> UploadLock? {
        table.updateQuietly { table in
            guard table.entries[id] == nil, !table.isAwaited(id) else { return nil }
            table.lastNumber += 1
            return table.lock(id, make(table.lastNumber), in: self)
        }
    }

    /// Uploads whose locks receive and were not yet requested to be released.
    func receiving() -> [UploadID] {
        table.updateQuietly { table in
            table.entries.filter { $0.value.isReceiving }.map(\.key)
        }
    }

    /// Requests the release of a lock that receives, for a request in another process or the end of
    /// this one.
    func requestRelease(of id: UploadID) {
        let request = table.updateQuietly { table -> (@Sendable () -> Void)? in
            guard let entry = table.entries[id], entry.isReceiving else { return nil }
            entry.isReleaseRequested = true
            return entry.requestRelease
        }
        guard let request else { return }
        // Outside the monitor: it is foreign code.
        request()
        wake()
    }
}

/// The lock of one upload in this process, until `unlock()`.
///
/// Used by one thread.
struct UploadLock {
    /// The upload.
    let id: UploadID
    /// What the table has of it; used only with the table's monitor.
    fileprivate let entry: UploadLocks.Entry
    fileprivate let locks: UploadLocks

    /// Unlocks; harmless where that was done before.
    func unlock() {
        locks.change(id) { table in
            if table.entries[id] === entry { table.entries[id] = nil }
        }
    }

    /// Tells the others what the upload is, so that they can judge whether it concerns them.
    func setCreation(_ creation: UploadCreation) {
        locks.change(id) { _ in entry.creation = creation }
    }

    /// From now on newer requests wait for the unlocking instead of requesting it.
    func setDelivering() { locks.table.updateQuietly { _ in entry.isDelivering = true } }

    /// From now on the kernel's lock is held too.
    func setInUse() { locks.table.updateQuietly { _ in entry.isInUse = true } }

    /// Waits until its release is requested; false when `deadline` comes first.
    func isReleaseRequested(until deadline: Deadline) -> Bool {
        locks.table.wait(until: deadline, isQuiet: true) { _ in
            entry.isReleaseRequested ? true : nil
        } ?? false
    }
}
