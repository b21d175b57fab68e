// Which uploads this process has locked.
//
// The kernel's locks keep processes apart; this table lets threads of one process request each other's
// release and wait without polling. Invariants: an upload has at most one lock, and of those who wait
// for it the newest gets it; what happens to an upload that nobody waits for wakes nobody.

import Posix
import UploadProtocol

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
            table.entries[id] = Entry(number, requestRelease: requestRelease)
            return .end(.locked(UploadLock(id: id, number: number, locks: self)))
        }
        guard let creation = entry.creation else { return nil }
        guard admits(creation) else { return .end(.notAdmitted) }
        guard !entry.isDelivering, !entry.isReleaseRequested, entry.number < number else {
            return nil
        }
        table.entries[id]?.isReleaseRequested = true
        return .request(entry.requestRelease)
    }

    private func stopWaiting(_ id: UploadID, _ number: UInt64) {
        let isFree = table.updateQuietly { table in
            table.remove(number, waitingFor: id)
            return table.entries[id] == nil && table.isAwaited(id)
        }
        if isFree { wake() }
    }

    /// Changes an entry; those who wait for its upload look again.
    fileprivate func change(_ id: UploadID, _ body: (inout Entry?) -> Void) {
        let isAwaited = table.updateQuietly { table in
            body(&table.entries[id])
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
            table.entries[id] = make(table.lastNumber)
            return UploadLock(id: id, number: table.lastNumber, locks: self)
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
            table.entries[id]?.isReleaseRequested = true
            return entry.requestRelease
        }
        guard let request else { return }
        // Outside the monitor: it is foreign code.
        request()
        wake()
    }
}

/// The lock of one upload in this process, until `unlock()`.
struct UploadLock: Sendable {
    /// The upload.
    let id: UploadID
    /// Newer locks have higher numbers.
    fileprivate let number: UInt64
    fileprivate let locks: UploadLocks

    /// Unlocks; harmless where that was done before.
    func unlock() {
        locks.change(id) { entry in
            if entry?.number == number { entry = nil }
        }
    }

    /// Tells the others what the upload is, so that they can judge whether it concerns them.
    func setCreation(_ creation: UploadCreation) { locks.change(id) { $0?.creation = creation } }

    /// From now on newer requests wait for the unlocking instead of requesting it.
    func setDelivering() { locks.table.updateQuietly { $0.entries[id]?.isDelivering = true } }

    /// From now on the kernel's lock is held too.
    func setInUse() { locks.table.updateQuietly { $0.entries[id]?.isInUse = true } }

    /// Waits until its release is requested; false when `deadline` comes first.
    func isReleaseRequested(until deadline: Deadline) -> Bool {
        locks.table.wait(until: deadline, isQuiet: true) { table in
            table.entries[id]?.isReleaseRequested == true ? true : nil
        } ?? false
    }
}
