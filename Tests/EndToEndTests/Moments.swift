// The moments of a round of uploads at which the daemon may be killed: clients and the upstream pass
// them, the killer waits for one of them.
//
// Nothing here knows what happens at a moment. Every wait ends with the last client.

import Foundation
import SpoolgateTestSupport

/// Where clients, upstream and killer meet.
///
/// Any thread; the condition guards everything.
final class Moments: @unchecked Sendable {
    /// What has just happened when it is passed.
    enum Moment: String, CaseIterable {
        // At the client.
        case creating, created, appending, completing, retrieving
        // At the upstream.
        case delivering, deliveringContent, delivered, answering, answered
        /// At the client: an interim response reported an offset. It takes a second of content, so no plan draws it.
        case reported

        /// The moments of every round.
        static let drawn = allCases.filter { $0 != .reported }
    }

    private struct Awaited {
        let moment: Moment
        var left: Int
        /// Whether whoever passes it is stopped there until `goOn`.
        let holds: Bool
        let number: Int
    }

    private let condition = NSCondition()
    private var awaited: Awaited?
    private var number = 0
    private var clients = 0

    /// As many clients are about to begin.
    func begin(clients count: Int) { locked { clients = count } }

    /// A client has ended, however.
    func clientEnded() {
        locked {
            clients -= 1
            condition.broadcast()
        }
    }

    /// Says that something has just happened; returns when the killer does not want it stopped.
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

    /// Looks out for the `ordinal`th time from now on that `moment` is passed.
    func lookOut(for moment: Moment, ordinal: Int = 1, holds: Bool) {
        locked {
            number += 1
            awaited = Awaited(moment: moment, left: ordinal, holds: holds, number: number)
        }
    }

    /// Waits until what is awaited has come; false if every client ended before that, or nothing came
    /// for two minutes.
    func waitForIt() -> Bool {
        locked {
            let deadline = Date(timeIntervalSinceNow: 120)
            while awaited?.left != 0, clients > 0, condition.wait(until: deadline) {}
            return awaited?.left == 0
        }
    }

    /// Lets whoever was stopped at the moment go on.
    func goOn() {
        locked {
            awaited = nil
            condition.broadcast()
        }
    }

    /// Waits for the last client.
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
    /// Random content.
    mutating func content(_ size: Int) -> Data {
        let words = (0..<(size + 7) / 8).map { _ in next() }
        return words.withUnsafeBytes { Data($0.prefix(size)) }
    }
}
