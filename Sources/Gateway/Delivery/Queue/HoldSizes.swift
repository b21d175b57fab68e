// How much content the queue `hold` keeps of what clients sent: failed uploads, and those of unknown
// outcome. Where a route's is full, no more uploads are accepted that could end there.
//
// Nothing in `hold` is destroyed to make room. Invariants: before anything is refused it was counted lately, since
// commands change the queue too; what comes to `hold` during a count is counted, at the worst twice until the next.

import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol

/// What `hold` keeps of each route, as far as this process knows.
///
/// Any thread.
final class HoldSizes: Sendable {
    private struct State {
        var sizes: [String: Int64] = [:]
        /// What the count under way has found, and what has come during it; nil: there is none.
        var counted: [String: Int64]?
        /// The uploads that have come during the count under way.
        var added: Set<UploadID> = []
        /// When it may be counted again.
        var nextCount = Deadline.after(.zero)
        /// Refusals of each route.
        var refusals = RareLines<String>()
    }

    private let state = Monitor(State())
    private static let countInterval = Duration.seconds(10)

    /// Notes that an upload has come to `hold`.
    func add(_ upload: Upload) { add(upload.creation, size: upload.offset) }

    /// The same of one that nobody has locked.
    func add(_ creation: UploadCreation, size: Int64) {
        state.updateQuietly { state in
            state.sizes[creation.route, default: 0] += size
            guard state.counted != nil else { return }
            state.counted?[creation.route, default: 0] += size
            state.added.insert(creation.id)
        }
    }

    /// Bytes that `hold` keeps of a route.
    func size(of route: String) -> Int64 { state.update { $0.sizes[route, default: 0] } }

    /// Begins a count, which `endCount` must end; false if one is under way or was made just now.
    func beginCount() -> Bool {
        state.updateQuietly { state in
            guard state.counted == nil, state.nextCount.hasPassed else { return false }
            state.counted = [:]
            return true
        }
    }

    /// Counts an upload that was found, unless an operator holds it: that is the operator's.
    func count(_ upload: WaitingUpload) {
        guard let cause = upload.cause, cause != .held else { return }
        state.updateQuietly { state in
            guard !state.added.contains(upload.id) else { return }
            state.counted?[upload.route, default: 0] += upload.size
        }
    }

    /// Ends a count; its result stands only if all uploads were seen.
    func endCount(isWhole: Bool) {
        state.updateQuietly { state in
            if isWhole, let counted = state.counted { state.sizes = counted }
            (state.counted, state.added) = (nil, [])
            state.nextCount = .after(Self.countInterval)
        }
    }

    /// Counts a refusal; how many are to be told now, or nil for none.
    func noteRefusal(of route: String) -> Int? { state.update { $0.refusals.note(route) } }
}

extension Deliveries {
    /// Counts what `hold` keeps of each route, unless that was done just now.
    private func countHold() {
        guard holdSizes.beginCount() else { return }
        var isWhole = false
        defer { holdSizes.endCount(isWhole: isWhole) }
        do throws(SpoolError) {
            try spool.forEachWaiting({ $1 == nil }, holdSizes.count)
            isWhole = true
        } catch {
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
