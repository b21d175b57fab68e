// The size of clients' content in `hold`: failed uploads and uploads of unknown outcome. While it reaches a route's
// limit, no uploads are accepted that could end in `hold`.
//
// Nothing in `hold` is deleted to make room. Invariants: before a refusal the sizes were counted recently, because
// commands change the queue as well; an upload that enters `hold` during a count is counted, at worst twice until
// the next one.

import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol

/// The size of `hold` for each route, as this process knows it.
///
/// Thread-safe.
final class HoldSizes: Sendable {
    private struct State {
        var sizes: [String: Int64] = [:]
        /// The result of the count under way, including uploads added meanwhile; nil: no count is under way.
        var counted: [String: Int64]?
        /// The uploads added during the count under way.
        var added: Set<UploadID> = []
        var nextCount = Deadline.after(.zero)
        var refusals = RareLines<String>()
    }

    private let state = Monitor(State())
    private static let countInterval = Duration.seconds(10)

    /// Adds an upload that entered `hold`.
    func add(_ upload: Upload) { add(upload.creation, size: upload.offset) }

    /// Adds an upload that is not locked.
    func add(_ creation: UploadCreation, size: Int64) {
        state.updateQuietly { state in
            state.sizes[creation.route, default: 0] += size
            guard state.counted != nil else { return }
            state.counted?[creation.route, default: 0] += size
            state.added.insert(creation.id)
        }
    }

    /// The number of bytes in `hold` for a route.
    func size(of route: String) -> Int64 { state.update { $0.sizes[route, default: 0] } }

    /// Begins a count, which `endCount` must end.
    ///
    /// - Returns: false if a count is under way or ended recently.
    func beginCount() -> Bool {
        state.updateQuietly { state in
            guard state.counted == nil, state.nextCount.hasPassed else { return false }
            state.counted = [:]
            return true
        }
    }

    /// Counts an upload, unless an operator holds it: such uploads are exempt from the limit.
    func count(_ upload: WaitingUpload) {
        guard let cause = upload.cause, cause != .held else { return }
        state.updateQuietly { state in
            guard !state.added.contains(upload.id) else { return }
            state.counted?[upload.route, default: 0] += upload.size
        }
    }

    /// Ends a count; an incomplete one has no effect.
    func endCount(isWhole: Bool) {
        state.updateQuietly { state in
            if isWhole, let counted = state.counted { state.sizes = counted }
            (state.counted, state.added) = (nil, [])
            state.nextCount = .after(Self.countInterval)
        }
    }

    /// Counts a refusal; returns the number to log now, or nil.
    func noteRefusal(of route: String) -> Int? { state.update { $0.refusals.note(route) } }
}

extension Deliveries {
    /// Counts the content in `hold`, unless the last count is recent.
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

    /// Whether `hold` has reached the limit of a route.
    package func isHoldFull(_ route: Route) -> Bool {
        let limit = route.settings.queue.maximumHoldSize
        guard limit > 0, holdSizes.size(of: route.name) >= limit else { return false }
        countHold()
        return holdSizes.size(of: route.name) >= limit
    }

    /// Logs, at most once a minute per route, that uploads are refused because `hold` is full.
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
