// Samples of the disk, so that no request to the admin socket waits for it, and the rate of received content.

import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSpool

/// Samples the state of the spool's file system every few seconds, and lists the partial uploads.
///
/// Each of the two runs on its own thread. Thread-safe.
final class Sampler: Sendable {
    /// The state of the spool's file system at one moment.
    struct Sample: Sendable {
        /// The free space, or nil if it could not be determined.
        var space: FileSystemSpace?
        /// Why no file could be created in the spool, or nil if one could.
        var fault: String?
        /// The time at which expired uploads were last removed, or nil if they never were.
        var lastPurge: WallTime?
        /// The nodes of a shared spool whose daemons are running or have crashed; empty if the spool is not shared.
        var nodes: [SpoolNode] = []
    }

    private struct State {
        var sample = Sample()
        var partial: [PartialUpload] = []
        /// When the disk is considered unresponsive if no new sample has been taken by then.
        var patience = Deadline.after(Sampler.patience)
    }

    private static let interval = Duration.seconds(5)
    private static let patience = Duration.seconds(60)
    private static let partialInterval = Duration.seconds(10)
    /// The maximum number of partial uploads in the list.
    ///
    /// It is twice the number that is shown, because requests may resume some of them before the list is made again.
    private static let mostPartial = 2 * Status.most

    private let spool: Spool
    private let state = Monitor(State())

    init(_ spool: Spool) { self.spool = spool }

    /// Takes a first sample and starts the threads.
    ///
    /// - Parameter hasPartial: called before each search for partial uploads; if it returns false, the spool is not
    ///   searched.
    /// - Throws: `SystemError` if a thread cannot be started.
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

    /// Lists the partial uploads; if `hasPartial` is false, the list becomes empty without a search.
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

    /// The partial uploads found by the last search, newest activity first; some may since have been completed or
    /// removed.
    var partial: [PartialUpload] { state.update { $0.partial } }

    /// Why the spool cannot receive content, or nil if it can.
    var fault: String? {
        state.update { state in
            state.patience.hasPassed
                ? "the disk has not responded for a minute" : state.sample.fault
        }
    }
}

/// Measures the rate at which content is received.
///
/// Thread-safe.
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

    /// The rate in bytes per second since the last measurement; measured anew at most every two seconds.
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
