// What has to be asked of the disk now and then, so that nobody who asks the daemon waits for it; and how fast
// content comes.

import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSpool

/// Looks at the spool's file system every few seconds, by a thread of its own, and by another one at the partial
/// uploads.
///
/// Any thread.
final class Sampler: Sendable {
    /// What was seen last.
    struct Sample: Sendable {
        /// What is free; nil: it could not be seen.
        var space: FileSystemSpace?
        /// Why no file could be made; nil: one could.
        var fault: String?
        /// When what is over was removed last; nil: never.
        var lastPurge: WallTime?
        /// The nodes that serve from a shared spool, or did until they died; none of another one.
        var nodes: [SpoolNode] = []
    }

    private struct State {
        var sample = Sample()
        var partial: [PartialUpload] = []
        /// When the disk is taken for dead, as long as nothing new was seen.
        var patience = Deadline.after(Sampler.patience)
    }

    private static let interval = Duration.seconds(5)
    private static let patience = Duration.seconds(60)
    private static let partialInterval = Duration.seconds(10)
    /// Most partial uploads that are kept: as many as are named, and as many again to which requests may send until
    /// the next walk.
    private static let mostPartial = 2 * Status.most

    private let spool: Spool
    private let state = Monitor(State())

    init(_ spool: Spool) { self.spool = spool }

    /// Looks once at the file system, and from then on by threads.
    ///
    /// - Parameter hasPartial: whether the spool may have partial uploads; they are not looked for without.
    /// - Throws: `SystemError` when no thread can be started.
    func start(hasPartial: @escaping @Sendable () -> Bool) throws(SystemError) {
        look()
        try Thread.start(name: "sampler") { [self] in
            while true {
                Thread.pause(Self.interval)
                look()
            }
        }
        try Thread.start(name: "sampler-partial") { [self] in
            while true {
                let watch = Stopwatch()
                lookForPartial(hasPartial())
                // A walk of a large spool takes long: it gets a hundredth of the time at most.
                let walk = Duration.nanoseconds(watch.nanoseconds)
                Thread.pause(max(Self.partialInterval, walk * 99))
            }
        }
    }

    /// Looks for partial uploads; `hasPartial`: whether there may be any.
    func lookForPartial(_ hasPartial: Bool) {
        // A check of its own reports a spool that cannot be read; the last list goes, because it is old.
        let found = hasPartial ? try? spool.newestPartial(most: Self.mostPartial) : nil
        state.update { $0.partial = found ?? [] }
    }

    private func look() {
        var sample = Sample()
        do throws(SpoolError) {
            sample.space = try spool.space()
            try spool.checkWritable()
            if spool.isShared { sample.nodes = try spool.nodes() }
        } catch {
            sample.fault = error.sentence
        }
        sample.lastPurge = spool.lastPurge
        state.update {
            $0.sample = sample
            $0.patience = .after(Self.patience)
        }
    }

    /// What was seen last.
    var sample: Sample { state.update { $0.sample } }

    /// The partial uploads that changed last when they were looked for, the newest first; some may be whole or gone.
    var partial: [PartialUpload] { state.update { $0.partial } }

    /// Why the spool takes no content; nil: it does.
    var fault: String? {
        state.update { state in
            state.patience.hasPassed
                ? "the disk has not responded for a minute" : state.sample.fault
        }
    }
}

/// How fast content comes, over the last seconds.
///
/// Any thread.
final class RateMeter: Sendable {
    private struct State {
        var watch = Stopwatch()
        var count: Int
        var rate: Int64 = 0
    }

    private static let least = 2_000_000_000

    private let metrics: Metrics
    private let state: Monitor<State>

    init(_ metrics: Metrics) {
        self.metrics = metrics
        state = Monitor(State(count: metrics.received))
    }

    /// Bytes a second since this was asked before, at least two seconds ago.
    var rate: Int64 {
        let count = metrics.received
        return state.update { state in
            let spent = state.watch.nanoseconds
            guard spent >= Self.least else { return state.rate }
            state.rate = Int64(Double(max(0, count - state.count)) * 1e9 / Double(spent))
            state.count = count
            state.watch = Stopwatch()
            return state.rate
        }
    }
}
