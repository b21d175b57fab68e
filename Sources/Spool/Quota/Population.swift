// How many uploads there are, and whose: bounds on all of them, and on those of one client that are not
// delivered yet.
//
// Kept in memory from what recovery, creations and removals tell. Another process that purges is not
// seen; so before anything is refused the names are read again, one thread at a time and at a modest
// rate. Invariant: no upload is made that was not taken here first.

import Posix
import UploadProtocol

/// How many uploads there may be.
package struct UploadBounds: Sendable, Equatable {
    /// Most uploads in the spool, those included whose response is kept; nil: no bound.
    package var total: Int?
    /// Most uploads of one client that are not delivered; nil: no bound.
    package var ofClient: Int?

    /// Makes bounds; without any, there are none.
    package init(total: Int? = nil, ofClient: Int? = nil) {
        self.total = total
        self.ofClient = ofClient
    }
}

/// The uploads of a spool, counted.
///
/// Any thread.
final class Population: Sendable {
    private struct Entry {
        /// The client's hash: a name each would take memory for every upload of an owner.
        var client: Int
        var isFinished = false
        /// How many counts had begun when it was there, of which a later one finds its name; nil while it
        /// is being made.
        var since: UInt64?
    }

    private struct State {
        var bounds = UploadBounds()
        var entries: [UploadID: Entry] = [:]
        var unfinished: [Int: Int] = [:]
        var counts: UInt64 = 0
        var isCounting = false
        var nextCount = Deadline.after(.zero)

        func fault(client: Int) -> UploadBound? {
            if let total = bounds.total, entries.count >= total { return .total(total) }
            if let most = bounds.ofClient, unfinished[client, default: 0] >= most {
                return .ofClient(most)
            }
            return nil
        }

        mutating func add(_ id: UploadID, client: Int, isFinished: Bool, since: UInt64?) {
            remove(id)
            entries[id] = Entry(client: client, isFinished: isFinished, since: since)
            if !isFinished { unfinished[client, default: 0] += 1 }
        }

        mutating func finish(_ id: UploadID) {
            guard let entry = entries[id], !entry.isFinished else { return }
            entries[id]?.isFinished = true
            leave(entry.client)
        }

        mutating func remove(_ id: UploadID) {
            guard let entry = entries.removeValue(forKey: id), !entry.isFinished else { return }
            leave(entry.client)
        }

        private mutating func leave(_ client: Int) {
            let left = unfinished[client, default: 1] - 1
            unfinished[client] = left > 0 ? left : nil
        }
    }

    private let state = Monitor(State())
    private let layout: SpoolLayout

    init(_ layout: SpoolLayout) { self.layout = layout }

    /// Uploads known.
    var total: Int { state.update { $0.entries.count } }

    /// Changes the bounds; uploads there are stay.
    func setBounds(_ bounds: UploadBounds) { state.update { $0.bounds = bounds } }

    /// Takes a place for an upload that is about to be made.
    ///
    /// - Throws: `.tooMany`; then nothing was taken.
    func take(_ creation: UploadCreation) throws(SpoolError) {
        let client = creation.client.hashValue
        if take(creation.id, client) == nil { return }
        countAgain()
        if let bound = take(creation.id, client) {
            throw .tooMany(directory: layout.root.path, bound)
        }
    }

    private func take(_ id: UploadID, _ client: Int) -> UploadBound? {
        state.update { state in
            if let bound = state.fault(client: client) { return bound }
            state.add(id, client: client, isFinished: false, since: nil)
            return nil
        }
    }

    /// Notes that an upload for which a place was taken is made.
    func noteMade(_ id: UploadID) {
        state.update { state in state.entries[id]?.since = state.counts }
    }

    /// Notes an upload that was found.
    func note(_ creation: UploadCreation, in queue: Queue) {
        let client = creation.client.hashValue
        state.update { state in
            if state.entries[creation.id] == nil {
                state.add(
                    creation.id,
                    client: client,
                    isFinished: queue == .delivered,
                    since: state.counts
                )
            } else if queue == .delivered {
                state.finish(creation.id)
            }
        }
    }

    /// Notes that an upload is delivered: only its response is kept.
    func finish(_ id: UploadID) { state.update { $0.finish(id) } }

    /// Notes that an upload is gone, or was not made.
    func remove(_ id: UploadID) { state.update { $0.remove(id) } }

    /// Forgets the uploads whose names are gone, unless that was done just now or is being done.
    private func countAgain() {
        let begun = state.update { state -> UInt64? in
            guard !state.isCounting, state.nextCount.hasPassed else { return nil }
            state.isCounting = true
            state.counts += 1
            return state.counts
        }
        guard let begun else { return }
        let begin = Deadline.after(.zero)
        // One that fails is no reason to refuse anything else than what is refused already.
        let present = try? names()
        let spent = Duration.nanoseconds(
            Int64(Deadline.after(.zero).nanoseconds - begin.nanoseconds)
        )
        state.update { state in
            state.isCounting = false
            state.nextCount = .after(max(.seconds(1), spent * 20))
            guard let present else { return }
            let gone = state.entries.filter { id, entry in
                guard let since = entry.since else { return false }
                return since < begun && present[id] == nil
            }
            for id in gone.keys { state.remove(id) }
            for (id, isFinished) in present where isFinished { state.finish(id) }
        }
    }

    /// The uploads there are, and whether each is delivered.
    private func names() throws(SystemError) -> [UploadID: Bool] {
        var present: [UploadID: Bool] = [:]
        // Twice where one can come back to: it may move meanwhile.
        let queues = SpoolLayout.usable + [.active, .deferred, .incoming]
        try layout.walk(queues.map { layout[$0] }) { id, place in
            present[id] = queues[place] == .delivered
        }
        return present
    }
}
