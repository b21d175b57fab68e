// Limits on served and waiting requests, so that no client occupies the threads that others need.
//
// Invariant: every count that is raised is lowered exactly once.

import SpoolgatePosix
package import SpoolgateUploadProtocol

/// The limits on concurrent requests.
package struct RequestBounds: Sendable, Equatable {
    /// Limits on requests of one kind.
    package struct Bound: Sendable, Equatable {
        /// The maximum number of requests of all clients together.
        package var total: Int
        /// The maximum number of one client's requests.
        package var ofClient: Int

        /// Creates limits.
        package init(total: Int, ofClient: Int) { (self.total, self.ofClient) = (total, ofClient) }
    }

    /// Requests of any kind that are served at a time.
    ///
    /// Their total is `threads.maximum`, or less if file descriptors are scarce.
    package let served: Bound
    /// Short requests that are served in addition to `served`.
    package let reserve: Bound
    /// Requests among those served that wait for another request.
    package let waiting: Bound
    /// The limit on new requests that wait for a thread while slow requests are ended.
    package let atDoor: Int

    /// Creates limits.
    package init(served: Bound, reserve: Bound, waiting: Bound, atDoor: Int) {
        (self.served, self.reserve) = (served, reserve)
        (self.waiting, self.atDoor) = (waiting, atDoor)
    }
}

/// The requests being served, counted by client; thread-safe.
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

        /// `isAtDoor` is true for a request that waits for a thread; such requests precede new ones.
        mutating func admit(
            _ client: ClientName,
            isShort: Bool,
            isLast: Bool,
            isAtDoor: Bool = false
        ) -> Decision {
            let taken = active - inReserve + (isAtDoor ? 0 : atDoor)
            let (bounds, hasRoom) = (bounds, !isLast && taken < bounds.served.total)
            let hasReserve = isShort && inReserve < bounds.reserve.total
            let decision = change(client) { count -> Decision in
                if hasRoom, count.active < bounds.served.ofClient {
                    count.active += 1
                    return .admitted(AdmissionTicket(client: client, isHurried: false))
                }
                guard hasReserve, count.inReserve < bounds.reserve.ofClient else {
                    return hasRoom ? .clientIsBusy : .noThread
                }
                count.inReserve += 1
                return .admitted(AdmissionTicket(client: client, isHurried: true))
            }
            if case .admitted(let ticket) = decision {
                active += 1
                if ticket.isHurried { inReserve += 1 }
            }
            return decision
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

    /// The decision on a request.
    package enum Decision {
        /// The request is admitted.
        ///
        /// After serving it, the caller must pass the ticket to `leave`.
        case admitted(AdmissionTicket)
        case clientIsBusy
        case noThread
    }

    private let state: Monitor<State>

    /// Creates the counters of a process that is serving no request.
    package init(_ bounds: RequestBounds) { state = Monitor(State(bounds: bounds)) }

    /// Changes the limits for later requests.
    package func setBounds(_ bounds: RequestBounds) { state.update { $0.bounds = bounds } }

    /// Admits a request if the limits allow it.
    ///
    /// Waits up to `patience` if no thread is free; otherwise returns at once. Pass true for `isShort` only if the
    /// request ends quickly unless it waits for another request. Such a request may use the reserve, but must not wait
    /// there. Pass true for `isLast` if no other thread accepts connections; the request may then use only the reserve.
    ///
    /// - Returns: the ticket, or the limit that the request exceeds.
    package func admit(
        _ client: ClientName,
        isShort: Bool,
        isLast: Bool = false,
        patience: Duration = .zero
    ) -> Decision {
        let (decision, waits) = state.updateQuietly { state -> (Decision, Bool) in
            let decision = state.admit(client, isShort: isShort, isLast: isLast)
            guard case .noThread = decision, !isLast, patience > .zero,
                state.atDoor < state.bounds.atDoor
            else { return (decision, false) }
            state.atDoor += 1
            return (decision, true)
        }
        guard waits else { return decision }
        defer { state.updateQuietly { $0.atDoor -= 1 } }
        let later = state.wait(until: .after(patience), isQuiet: true) { state -> Decision? in
            let decision = state.admit(client, isShort: isShort, isLast: isLast, isAtDoor: true)
            if case .noThread = decision { return nil }
            return decision
        }
        return later ?? decision
    }

    /// Records that the admitted request with this ticket has ended.
    package func leave(_ ticket: AdmissionTicket) {
        state.update { state in
            state.active -= 1
            if ticket.isHurried { state.inReserve -= 1 }
            state.change(ticket.client) { count in
                if ticket.isHurried { count.inReserve -= 1 } else { count.active -= 1 }
            }
        }
    }

    /// Records that an admitted request starts to wait for another request.
    ///
    /// - Returns: the reason why the request must not wait, or nil if it may. After nil, the caller must call
    ///   `stopWaiting` later.
    func startWaiting(_ ticket: AdmissionTicket) -> Refusal? {
        state.update { state in
            guard !ticket.isHurried, state.waiting < state.bounds.waiting.total else {
                return .tooManyWait
            }
            guard state.clients[ticket.client]?.waiting ?? 0 < state.bounds.waiting.ofClient else {
                return .clientWaits
            }
            state.waiting += 1
            state.change(ticket.client) { $0.waiting += 1 }
            return nil
        }
    }

    /// Records that a request no longer waits.
    package func stopWaiting(_ ticket: AdmissionTicket) {
        state.update { state in
            state.waiting -= 1
            state.change(ticket.client) { $0.waiting -= 1 }
        }
    }

    /// Whether at least 80 percent of the threads for requests of any kind are in use.
    package var isCrowded: Bool {
        state.updateQuietly { 5 * ($0.active - $0.inReserve) >= 4 * $0.bounds.served.total }
    }

    package var load: (active: Int, waiting: Int) {
        state.update { state in
            (state.active, state.waiting)
        }
    }
}

/// The proof of a request's admission, needed to record its end.
package struct AdmissionTicket: Sendable {
    package let client: ClientName
    /// True for a short request in the reserve, which must not wait for other requests.
    package let isHurried: Bool
}

/// A request's place among the waiting requests, taken before a long wait and released once.
///
/// Used by one thread.
package final class WaitingPlace {
    /// How long a request may wait without a place.
    ///
    /// This is enough if the other request reacts at once.
    package static let briefWait = Duration.seconds(1)

    private let admission: Admission
    private let ticket: AdmissionTicket?
    private var isTaken = false
    /// The reason why `take` returned false; nil if it has not.
    package private(set) var refusal: Refusal?

    /// Creates a place that has not been taken.
    ///
    /// The delivery queue passes nil for `ticket` because it has its own limit on threads. `take` then always succeeds.
    package init(_ admission: Admission, for ticket: AdmissionTicket?) {
        self.admission = admission
        self.ticket = ticket
    }

    deinit { giveBack() }

    /// Takes the place if it has not been taken; returns false if no place is free.
    package func take() -> Bool {
        guard let ticket, !isTaken else { return true }
        refusal = admission.startWaiting(ticket)
        isTaken = refusal == nil
        return isTaken
    }

    /// Releases the place; does nothing if it was not taken.
    package func giveBack() {
        if isTaken, let ticket { admission.stopWaiting(ticket) }
        isTaken = false
    }
}
