// The moments of a round, which clients and the upstream pass; the killer waits for one.
//
// Every wait ends with the last client.

import Foundation
import SpoolgateTestSupport

/// The meeting point of clients, upstream and killer, for any thread; the condition guards all state.
final class Moments: @unchecked Sendable {
    enum Moment: String, CaseIterable {
        // At the client.
        case creating, created, appending, completing, retrieving
        // At the upstream.
        case delivering, deliveringContent, delivered, respondingTo, responded
        /// At the client: an interim response reported an offset. No plan draws it, because it needs a second of
        /// content.
        case reported

        static let drawn = allCases.filter { $0 != .reported }
    }

    private struct Awaited {
        let moment: Moment
        var left: Int
        /// Whether the passing thread waits there for `goOn`.
        let holds: Bool
        let number: Int
    }

    private let condition = NSCondition()
    private var awaited: Awaited?
    private var number = 0
    private var clients = 0

    func begin(clients count: Int) { locked { clients = count } }

    func clientEnded() {
        locked {
            clients -= 1
            condition.broadcast()
        }
    }

    /// Passes a moment, and waits if the killer holds it.
    func pass(_ moment: Moment) {
        locked {
            guard var awaited, awaited.moment == moment, awaited.left > 0 else { return }
            awaited.left -= 1
            self.awaited = awaited
            guard awaited.left == 0 else { return }
            condition.broadcast()
            while awaited.holds, self.awaited?.number == awaited.number { condition.wait() }
        }
    }

    /// Sets the moment to wait for: the `ordinal`th `moment` from now on.
    func lookOut(for moment: Moment, ordinal: Int = 1, holds: Bool) {
        locked {
            number += 1
            awaited = Awaited(moment: moment, left: ordinal, holds: holds, number: number)
        }
    }

    /// Waits for that moment; false if all clients end first, or after two minutes.
    func waitForIt() -> Bool {
        locked {
            let deadline = Date(timeIntervalSinceNow: 120)
            while awaited?.left != 0, clients > 0, condition.wait(until: deadline) {}
            return awaited?.left == 0
        }
    }

    func goOn() {
        locked {
            awaited = nil
            condition.broadcast()
        }
    }

    func waitForClients() {
        locked { while clients > 0 { condition.wait() } }
    }

    private func locked<R>(_ body: () -> R) -> R {
        condition.lock()
        defer { condition.unlock() }
        return body()
    }
}

extension SplitMix {
    mutating func content(_ size: Int) -> Data {
        let words = (0..<(size + 7) / 8).map { _ in next() }
        return words.withUnsafeBytes { Data($0.prefix(size)) }
    }
}
