// The size of clients' content in `hold`: failed uploads and uploads of unknown outcome. While the size has reached a
// route's limit, uploads that could end in `hold` are refused.
//
// Nothing in `hold` is deleted to make room. Invariants: before a refusal the sizes were counted recently, because
// commands change the queue as well; an upload that enters `hold` during a count is counted, at worst twice.

import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol

/// The number of bytes in `hold` for each route, as far as this process knows.
///
/// Thread-safe.
final class HoldSizes: Sendable {
    private struct State {
        var sizes: [String: Int64] = [:]
        /// The sizes found by the count under way, including added uploads, keyed by route; nil without a count.
        var counted: [String: Int64]?
        /// Uploads added during the count under way.
        var added: Set<UploadID> = []
        var nextCount = Deadline.after(.zero)
        var refusals = RareLines<String>()
    }

    private let state = Monitor(State())
    private static let countInterval = Duration.seconds(10)

    func add(_ upload: Upload) { add(upload.creation, size: upload.offset) }

    /// Adds an upload in `hold`, which need not be locked.
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

    /// Begins a count of `hold`.
    ///
    /// Returns false if a count is under way or ended recently. Otherwise, the caller must call `endCount`.
    func beginCount() -> Bool {
        state.updateQuietly { state in
            guard state.counted == nil, state.nextCount.hasPassed else { return false }
            state.counted = [:]
            return true
        }
    }

    /// Counts an upload, unless an operator holds it.
    func count(_ upload: WaitingUpload) {
        guard let cause = upload.cause, cause != .held else { return }
        state.updateQuietly { state in
            guard !state.added.contains(upload.id) else { return }
            state.counted?[upload.route, default: 0] += upload.size
        }
    }

    /// Ends the count.
    ///
    /// The result is used only if `isWhole` is true.
    func endCount(isWhole: Bool) {
        state.updateQuietly { state in
            if isWhole, let counted = state.counted { state.sizes = counted }
            (state.counted, state.added) = (nil, [])
            state.nextCount = .after(Self.countInterval)
        }
    }

    /// Returns the number of refusals to log now, or nil if it is too soon to log.
    func noteRefusal(of route: String) -> Int? { state.update { $0.refusals.note(route) } }
}

extension Deliveries {
    /// Counts `hold` again, unless the last count is recent.
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

    /// Whether the content in `hold` has reached the route's limit.
    package func isHoldFull(_ route: Route) -> Bool {
        let limit = route.settings.queue.maximumHoldSize
        guard limit > 0, holdSizes.size(of: route.name) >= limit else { return false }
        countHold()
        return holdSizes.size(of: route.name) >= limit
    }

    /// Logs, at most once a minute for each route, that uploads are refused because `hold` is full.
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
