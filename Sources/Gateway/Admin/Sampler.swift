// Samples of the disk, so that no request to the admin socket waits for it, and the rate of received content.

import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSpool

/// Samples the spool's file system every few seconds, and the partial uploads, each on a thread of its own.
///
/// Any thread.
final class Sampler: Sendable {
    /// The last sample.
    struct Sample: Sendable {
        /// The free space; nil: it could not be determined.
        var space: FileSystemSpace?
        /// The reason why no file could be created; nil: one could.
        var fault: String?
        /// The time of the last purge of expired uploads; nil: never.
        var lastPurge: WallTime?
        /// The nodes of a shared spool that are running or crashed; empty for other spools.
        var nodes: [SpoolNode] = []
    }

    private struct State {
        var sample = Sample()
        var partial: [PartialUpload] = []
        /// The time at which the disk counts as unresponsive unless a new sample is taken.
        var patience = Deadline.after(Sampler.patience)
    }

    private static let interval = Duration.seconds(5)
    private static let patience = Duration.seconds(60)
    private static let partialInterval = Duration.seconds(10)
    /// The maximum number of partial uploads kept: those that are listed, and as many again that requests may resume
    /// before the next walk.
    private static let mostPartial = 2 * Status.most

    private let spool: Spool
    private let state = Monitor(State())

    init(_ spool: Spool) { self.spool = spool }

    /// Takes a sample of the file system, and starts the threads.
    ///
    /// - Parameter hasPartial: whether the spool may have partial uploads; otherwise no walk is made.
    /// - Throws: `SystemError` if no thread can be started.
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
                // A walk through a large spool takes long, so walks get at most one percent of the time.
                let walk = Duration.nanoseconds(watch.nanoseconds)
                Thread.pause(max(Self.partialInterval, walk * 99))
            }
        }
    }

    /// Lists the partial uploads; `hasPartial`: whether there may be any.
    func lookForPartial(_ hasPartial: Bool) {
        // An unreadable spool is reported by its own check. The last list is dropped, because it is outdated.
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

    /// The last sample.
    var sample: Sample { state.update { $0.sample } }

    /// The partial uploads by last activity at the last walk, newest first; some may be complete or removed by now.
    var partial: [PartialUpload] { state.update { $0.partial } }

    /// The reason why the spool accepts no content; nil: it does.
    var fault: String? {
        state.update { state in
            state.patience.hasPassed
                ? "the disk has not responded for a minute" : state.sample.fault
        }
    }
}

/// The rate of received content over the last seconds.
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

    /// Bytes per second since the last measurement, at least two seconds ago.
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
