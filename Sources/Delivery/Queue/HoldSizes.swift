// How much content the queue `hold` keeps of what clients sent: failed uploads, and those of unknown
// outcome. Where a route's is full, no more uploads are accepted that could end there.
//
// Nothing in `hold` is destroyed to make room. Invariants: before anything is refused it was counted lately, since
// commands change the queue too; what comes to `hold` during a count is counted, at the worst twice until the next.

import Journal
import Posix
import Settings
import Spool
import UploadProtocol

/// What `hold` keeps of each route, as far as this process knows.
///
/// Any thread.
final class HoldSizes: Sendable {
    private struct State {
        var sizes: [String: Int64] = [:]
        /// When it may be counted again, and whether a thread does so.
        var nextCount = Deadline.after(.zero)
        var isCounting = false
        /// What has come during the count under way.
        var added: [UploadID: (route: String, size: Int64)] = [:]
        /// Refusals of each route.
        var refusals = RareLines<String>()
    }

    private let state = Monitor(State())
    private static let countInterval = Duration.seconds(10)

    /// Notes that an upload has come to `hold`.
    func add(_ upload: Upload) {
        let (route, size) = (upload.creation.route, upload.state.offset)
        state.update { state in
            state.sizes[route, default: 0] += size
            if state.isCounting { state.added[upload.creation.id] = (route, size) }
        }
    }

    /// Whether an upload has come during the count under way, whose result is without it.
    func hasAdded(_ id: UploadID) -> Bool { state.update { $0.added[id] != nil } }

    /// Bytes that `hold` keeps of a route.
    func size(of route: String) -> Int64 { state.update { $0.sizes[route, default: 0] } }

    /// Whether the caller is to count now, and give the result to `set`.
    func takesCount() -> Bool {
        state.update { state in
            guard !state.isCounting, state.nextCount.hasPassed else { return false }
            state.isCounting = true
            return true
        }
    }

    /// Ends a count; nil: it did not work.
    func set(_ sizes: [String: Int64]?) {
        state.update { state in
            if let sizes {
                state.sizes = sizes
                for (route, size) in state.added.values { state.sizes[route, default: 0] += size }
            }
            state.added = [:]
            state.isCounting = false
            state.nextCount = .after(Self.countInterval)
        }
    }

    /// Counts a refusal; how many are to be told now, or nil for none.
    func noteRefusal(of route: String) -> Int? { state.update { $0.refusals.note(route) } }
}

extension Deliveries {
    /// Counts what `hold` keeps of each route, unless that was done just now.
    func countHold(step: () -> Void = {}) {
        guard holdSizes.takesCount() else { return }
        var sizes: [String: Int64] = [:]
        do throws(SpoolError) {
            // What an operator holds is the operator's.
            try spool.forEachHeld(step: step) { id, route, size in
                if !holdSizes.hasAdded(id) { sizes[route, default: 0] += size }
            }
            holdSizes.set(sizes)
        } catch {
            holdSizes.set(nil)
            log.spoolFailed(error, upload: nil)
        }
    }

    /// Whether `hold` keeps as much of a route as it may.
    package func isHoldFull(_ route: Route) -> Bool {
        let limit = route.settings.queue.maximumHoldSize
        guard limit > 0, holdSizes.size(of: route.name) >= limit else { return false }
        countHold()
        return holdSizes.size(of: route.name) >= limit
    }

    /// Tells, once in a while, that an upload was not accepted because `hold` is full.
    package func noteHoldFull(_ route: Route) {
        guard let count = holdSizes.noteRefusal(of: route.name) else { return }
        log.holdFull(
            route: route.name,
            size: holdSizes.size(of: route.name),
            limit: route.settings.queue.maximumHoldSize,
            count: count
        )
    }
}
