// Who may be at work, and who may wait: bounds on the requests of one client and of all, so that no client
// takes the threads that the others need.
//
// It counts and decides; what a request that is not admitted gets is LoadShedding's. Invariant: whatever
// was counted is given back exactly once.

import SpoolgatePosix
package import SpoolgateUploadProtocol

/// Most requests at a time.
package struct RequestBounds: Sendable, Equatable {
    /// At work: `threads.maximum`, or what there are descriptors for.
    package let total: Int
    /// Short ones beyond those.
    package let reserve: Int
    /// At work, of one client.
    package let ofClient: Int
    /// Of those, such as wait.
    package let waitingOfClient: Int
    /// Waiting, of all clients.
    package let waiting: Int
    /// Short ones of one client where there is no room else.
    package let reserveOfClient: Int
    /// Those for whom others are asked to let go, until they have.
    package let atDoor: Int

    /// Bounds in numbers.
    package init(
        total: Int,
        reserve: Int,
        ofClient: Int,
        waitingOfClient: Int,
        waiting: Int,
        reserveOfClient: Int,
        atDoor: Int
    ) {
        (self.total, self.reserve, self.atDoor) = (total, reserve, atDoor)
        self.ofClient = ofClient
        self.waitingOfClient = waitingOfClient
        self.waiting = waiting
        self.reserveOfClient = reserveOfClient
    }
}

/// The requests at work, counted by client.
///
/// Any thread.
package final class Admission: Sendable {
    private struct Count {
        var active = 0
        var inReserve = 0
        var waiting = 0
        var isNone: Bool { active == 0 && inReserve == 0 && waiting == 0 }
    }

    private struct State {
        var bounds: RequestBounds
        var clients: [ClientName: Count] = [:]
        var active = 0
        var inReserve = 0
        var waiting = 0
        var atDoor = 0

        mutating func admit(_ client: ClientName, isShort: Bool, isLast: Bool) -> Answer {
            let (bounds, hasRoom) = (bounds, !isLast && active - inReserve < bounds.total)
            let hasReserve = isShort && inReserve < bounds.reserve
            let answer = change(client) { count -> Answer in
                if hasRoom, count.active < bounds.ofClient {
                    count.active += 1
                    return .admitted(AdmissionTicket(client: client, isHurried: false))
                }
                guard hasReserve, count.inReserve < bounds.reserveOfClient else {
                    return hasRoom ? .clientIsBusy : .noThread
                }
                count.inReserve += 1
                return .admitted(AdmissionTicket(client: client, isHurried: true))
            }
            if case .admitted(let ticket) = answer {
                active += 1
                if ticket.isHurried { inReserve += 1 }
            }
            return answer
        }

        mutating func change<R>(_ client: ClientName, _ change: (inout Count) -> R) -> R {
            func changed(_ count: inout Count) -> (R, isNone: Bool) {
                (change(&count), count.isNone)
            }
            let (result, isNone) = changed(&clients[client, default: Count()])
            if isNone { clients[client] = nil }
            return result
        }
    }

    /// What is said of a request.
    package enum Answer {
        /// Serve it; whoever asked gives the ticket back by `leave`.
        case admitted(AdmissionTicket)
        /// Its client has as many at work as it may.
        case clientIsBusy
        /// There is no thread for it.
        case noThread
    }

    private let state: Monitor<State>

    /// Begins with nobody at work.
    package init(_ bounds: RequestBounds) { state = Monitor(State(bounds: bounds)) }

    /// Changes the bounds for who comes from now on.
    package func setBounds(_ bounds: RequestBounds) { state.update { $0.bounds = bounds } }

    /// Admits a request, or not.
    ///
    /// - Parameters:
    ///   - client: whose it is.
    ///   - isShort: whether it ends within moments, unless it waits: such a one is admitted where others
    ///     are not, and must hurry then.
    ///   - isLast: whether it must hurry in any case, because no other thread accepts.
    ///   - patience: how long to wait where there is no thread, since somebody was asked to let go.
    /// - Returns: the ticket, or why not.
    package func admit(
        _ client: ClientName,
        isShort: Bool,
        isLast: Bool = false,
        patience: Duration = .zero
    ) -> Answer {
        let (answer, waits) = state.updateQuietly { state -> (Answer, Bool) in
            let answer = state.admit(client, isShort: isShort, isLast: isLast)
            guard case .noThread = answer, !isLast, patience > .zero,
                state.atDoor < state.bounds.atDoor
            else { return (answer, false) }
            state.atDoor += 1
            return (answer, true)
        }
        guard waits else { return answer }
        defer { state.updateQuietly { $0.atDoor -= 1 } }
        let later = state.wait(until: .after(patience), isQuiet: true) { state -> Answer? in
            let answer = state.admit(client, isShort: isShort, isLast: isLast)
            if case .noThread = answer { return nil }
            return answer
        }
        return later ?? answer
    }

    /// A request that was admitted is over.
    package func leave(_ ticket: AdmissionTicket) {
        state.update { state in
            state.active -= 1
            if ticket.isHurried { state.inReserve -= 1 }
            state.change(ticket.client) { count in
                if ticket.isHurried { count.inReserve -= 1 } else { count.active -= 1 }
            }
        }
    }

    /// Lets a request wait; nil where it may, and then `stopWaiting` has to follow.
    func startWaiting(_ ticket: AdmissionTicket) -> Refusal? {
        state.update { state in
            guard !ticket.isHurried, state.waiting < state.bounds.waiting else {
                return .tooManyWait
            }
            guard state.clients[ticket.client]?.waiting ?? 0 < state.bounds.waitingOfClient else {
                return .clientWaits
            }
            state.waiting += 1
            state.change(ticket.client) { $0.waiting += 1 }
            return nil
        }
    }

    /// A request waits no more.
    package func stopWaiting(_ ticket: AdmissionTicket) {
        state.update { state in
            state.waiting -= 1
            state.change(ticket.client) { $0.waiting -= 1 }
        }
    }

    /// Requests at work now.
    package var active: Int { state.updateQuietly(\.active) }

    /// Requests at work and waiting now.
    package var load: (active: Int, waiting: Int) {
        state.update { state in
            (state.active, state.waiting)
        }
    }
}

/// One request that was admitted.
package struct AdmissionTicket: Sendable {
    /// Whose it is.
    package let client: ClientName
    /// Whether it has its place only because it is short: it must not wait for others.
    package let isHurried: Bool
}

/// A place among those that wait, taken when it is needed and given back once.
///
/// Used by one thread.
package final class WaitingPlace {
    /// How long anybody may wait without a place: for one that lets go at once.
    package static let briefWait = Duration.seconds(1)

    private let admission: Admission
    private let ticket: AdmissionTicket?
    private var isTaken = false
    /// Why there was none.
    package private(set) var refusal: Refusal?

    /// Makes it; without a ticket it is the queue's, whose threads are bounded.
    package init(_ admission: Admission, for ticket: AdmissionTicket?) {
        self.admission = admission
        self.ticket = ticket
    }

    deinit { giveBack() }

    /// Takes it, unless that was done; false where there is none.
    package func take() -> Bool {
        guard let ticket, !isTaken else { return true }
        refusal = admission.startWaiting(ticket)
        isTaken = refusal == nil
        return isTaken
    }

    /// Gives it back; harmless if it was not taken.
    package func giveBack() {
        if isTaken, let ticket { admission.stopWaiting(ticket) }
        isTaken = false
    }
}
