// How many transfers of one session run at a time, in the order in which they asked.
//
// The invariant: whoever entered leaves once, and whoever asked is told once.

import SpoolgatePosix

/// The places of a session.
final class TransferSlots: Sendable {
    /// What one that asks waits by; it can be withdrawn.
    struct Ticket: Sendable {
        fileprivate let number: UInt64
    }

    private struct Waiting {
        var number: UInt64
        var told: @Sendable (_ entered: Bool) -> Void
    }

    private struct State {
        var free: Int
        var next: UInt64 = 0
        var waiting: [Waiting] = []
    }

    private let state: Monitor<State>

    /// Has so many places, at least one.
    init(_ count: Int) { state = Monitor(State(free: max(1, count))) }

    /// Asks for a place.
    ///
    /// - Parameter told: told once, on this thread or on that of another transfer: true: it has a place, which `leave`
    ///   gives back; false: it was withdrawn.
    /// - Returns: what it can be withdrawn by.
    func enter(_ told: @escaping @Sendable (_ entered: Bool) -> Void) -> Ticket {
        let (ticket, isFree) = state.updateQuietly { state in
            let number = state.next
            state.next += 1
            let isFree = state.free > 0
            if isFree {
                state.free -= 1
            } else {
                state.waiting.append(Waiting(number: number, told: told))
            }
            return (Ticket(number: number), isFree)
        }
        if isFree { told(true) }
        return ticket
    }

    /// Has one that waits told false; nothing for one that has its place.
    func withdraw(_ ticket: Ticket) {
        let waiting = state.updateQuietly { state -> Waiting? in
            guard let index = state.waiting.firstIndex(where: { $0.number == ticket.number })
            else { return nil }
            return state.waiting.remove(at: index)
        }
        waiting?.told(false)
    }

    /// Gives a place back: to the one that has waited longest.
    func leave() {
        let next = state.updateQuietly { state -> Waiting? in
            guard !state.waiting.isEmpty else {
                state.free += 1
                return nil
            }
            return state.waiting.removeFirst()
        }
        next?.told(true)
    }
}
