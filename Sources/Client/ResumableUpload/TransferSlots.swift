// Limits the concurrent transfers of a session, in the order of their requests.
//
// The invariant: each slot is left once, and each request for a slot is granted or withdrawn once.

import SpoolgatePosix

final class TransferSlots: Sendable {
    struct Ticket: Sendable {
        fileprivate let number: UInt64
    }

    private struct Waiting {
        var number: UInt64
        var notify: @Sendable (_ entered: Bool) -> Void
    }

    private struct State {
        var free: Int
        var next: UInt64 = 0
        var waiting: [Waiting] = []
    }

    private let state: Monitor<State>

    /// Creates `count` slots, at least one.
    init(_ count: Int) { state = Monitor(State(free: max(1, count))) }

    /// Requests a slot.
    ///
    /// `notify` is called once, on this thread or another transfer's. True grants a slot, which `leave` must return;
    /// false means that the request was withdrawn.
    func enter(_ notify: @escaping @Sendable (_ entered: Bool) -> Void) -> Ticket {
        let (ticket, isFree) = state.updateQuietly { state in
            let number = state.next
            state.next += 1
            let isFree = state.free > 0
            if isFree {
                state.free -= 1
            } else {
                state.waiting.append(Waiting(number: number, notify: notify))
            }
            return (Ticket(number: number), isFree)
        }
        if isFree { notify(true) }
        return ticket
    }

    /// Withdraws a request that is still waiting.
    func withdraw(_ ticket: Ticket) {
        let waiting = state.updateQuietly { state -> Waiting? in
            guard let index = state.waiting.firstIndex(where: { $0.number == ticket.number })
            else { return nil }
            return state.waiting.remove(at: index)
        }
        waiting?.notify(false)
    }

    /// Returns a slot, which goes to the request that has waited longest.
    func leave() {
        let next = state.updateQuietly { state -> Waiting? in
            guard !state.waiting.isEmpty else {
                state.free += 1
                return nil
            }
            return state.waiting.removeFirst()
        }
        next?.notify(true)
    }
}
