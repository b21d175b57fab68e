// Who holds which upload in this process.
//
// The kernel's locks keep processes apart; this table lets threads of one process ask each other to
// let go and wait without polling. Invariants: an upload has at most one holder, and of those who want
// it the newest gets it; what happens to an upload that nobody waits for wakes nobody.

import Posix
import UploadProtocol

/// The table of holders.
///
/// Any thread.
final class Holders: Sendable {
    /// One claim on an upload; newer claims have higher numbers.
    typealias Ticket = UInt64

    private struct Holder {
        let ticket: Ticket
        let release: @Sendable () -> Void
        /// Known once the record has been read.
        var creation: UploadCreation?
        /// Whether it has the kernel's lock too, and does not wait for another process any more.
        var isInUse = false
        var isDelivering = false
        var isAsked = false

        /// Whether a request in another process may ask it to let go.
        var canBeAsked: Bool { isInUse && !isDelivering && !isAsked }
    }

    private struct Table {
        var lastTicket: Ticket = 0
        var holders: [UploadID: Holder] = [:]
        var waiting: [UploadID: Set<Ticket>] = [:]

        mutating func remove(_ ticket: Ticket, waitingFor id: UploadID) {
            waiting[id]?.remove(ticket)
            if waiting[id]?.isEmpty == true { waiting[id] = nil }
        }

        func isAwaited(_ id: UploadID) -> Bool { waiting[id] != nil }
    }

    private let table = Monitor(Table())

    /// How taking an upload ended.
    enum Taking {
        /// The caller holds it.
        case taken(Ticket)
        /// The holder's creation is not one that the caller may use.
        case notAdmitted
        /// It was not let go in time.
        case busy
    }

    private enum Step {
        case end(Taking)
        case ask(@Sendable () -> Void)
    }

    /// Takes an upload, asking an older holder that still receives to let go.
    ///
    /// - Parameters:
    ///   - id: the upload.
    ///   - limit: when to give up.
    ///   - admits: whether the caller may use an upload with that creation; quick and without effect.
    ///   - release: how to ask the caller to let go.
    /// - Returns: how it ended.
    func take(
        _ id: UploadID,
        until limit: WaitLimit,
        admits: (UploadCreation) -> Bool,
        release: @escaping @Sendable () -> Void
    ) -> Taking {
        let ticket = table.updateQuietly { table in
            table.lastTicket += 1
            table.waiting[id, default: []].insert(table.lastTicket)
            return table.lastTicket
        }
        while true {
            let step = table.wait(until: limit.deadline, isQuiet: true) { table in
                Self.step(&table, id, ticket, admits: admits, release: release)
            }
            switch step {
            case .ask(let release):
                // Outside the monitor: it is foreign code.
                release()
                wake()
            case .end(let taking):
                if case .taken = taking { return taking }
                stopWaiting(id, ticket)
                return taking
            case nil:
                guard limit.hasPassed else { continue }
                stopWaiting(id, ticket)
                return .busy
            }
        }
    }

    private static func step(
        _ table: inout Table,
        _ id: UploadID,
        _ ticket: Ticket,
        admits: (UploadCreation) -> Bool,
        release: @escaping @Sendable () -> Void
    ) -> Step? {
        guard let holder = table.holders[id] else {
            guard table.waiting[id]?.max() == ticket else { return nil }
            table.remove(ticket, waitingFor: id)
            table.holders[id] = Holder(ticket: ticket, release: release)
            return .end(.taken(ticket))
        }
        guard let creation = holder.creation else { return nil }
        guard admits(creation) else { return .end(.notAdmitted) }
        guard !holder.isDelivering, !holder.isAsked, holder.ticket < ticket else { return nil }
        table.holders[id]?.isAsked = true
        return .ask(holder.release)
    }

    private func stopWaiting(_ id: UploadID, _ ticket: Ticket) {
        let isFree = table.updateQuietly { table in
            table.remove(ticket, waitingFor: id)
            return table.holders[id] == nil && table.isAwaited(id)
        }
        if isFree { wake() }
    }

    /// Has all look who wait for anything here.
    private func wake() { table.update { _ in } }

    /// Takes an upload that is only now made.
    func takeNew(
        _ creation: UploadCreation,
        release: @escaping @Sendable () -> Void
    ) -> Ticket {
        table.updateQuietly { table in
            precondition(table.holders[creation.id] == nil, "an identity is never used twice")
            table.lastTicket += 1
            table.holders[creation.id] = Holder(
                ticket: table.lastTicket,
                release: release,
                creation: creation,
                isInUse: true
            )
            return table.lastTicket
        }
    }

    /// Takes an upload if nobody has it; nobody can ask this holder to let go.
    func takeIfFree(_ id: UploadID) -> Ticket? {
        table.updateQuietly { table in
            guard table.holders[id] == nil else { return nil }
            table.lastTicket += 1
            table.holders[id] = Holder(ticket: table.lastTicket, release: {}, isDelivering: true)
            return table.lastTicket
        }
    }

    /// Tells the others what the upload is, so that they can judge whether it concerns them.
    func setCreation(_ creation: UploadCreation) {
        let isAwaited = table.updateQuietly { table in
            table.holders[creation.id]?.creation = creation
            return table.isAwaited(creation.id)
        }
        if isAwaited { wake() }
    }

    /// From now on newer claims wait for this holder instead of asking it to let go.
    func setDelivering(_ id: UploadID) {
        table.updateQuietly { $0.holders[id]?.isDelivering = true }
    }

    /// From now on the holder has the kernel's lock.
    func setInUse(_ id: UploadID) {
        table.updateQuietly { $0.holders[id]?.isInUse = true }
    }

    /// Uploads whose holders receive, and were not yet asked to let go.
    func receiving() -> [UploadID] {
        table.updateQuietly { table in
            table.holders.filter { $0.value.canBeAsked }.map(\.key)
        }
    }

    /// Asks a holder that receives to let go, for a request in another process or the end of this one.
    func ask(_ id: UploadID) {
        let release = table.updateQuietly { table -> (@Sendable () -> Void)? in
            guard let holder = table.holders[id], holder.canBeAsked else { return nil }
            table.holders[id]?.isAsked = true
            return holder.release
        }
        guard let release else { return }
        // Outside the monitor: it is foreign code.
        release()
        wake()
    }

    /// Waits until a newer claim asks the holder to let go; false when `deadline` comes first.
    func isAsked(_ id: UploadID, until deadline: Deadline) -> Bool {
        table.wait(until: deadline, isQuiet: true) { table in
            table.holders[id]?.isAsked == true ? true : nil
        } ?? false
    }

    /// Lets go of an upload; harmless if `ticket` does not hold it.
    func letGo(_ id: UploadID, _ ticket: Ticket) {
        let isAwaited = table.updateQuietly { table in
            guard table.holders[id]?.ticket == ticket else { return false }
            table.holders[id] = nil
            return table.isAwaited(id)
        }
        if isAwaited { wake() }
    }
}
