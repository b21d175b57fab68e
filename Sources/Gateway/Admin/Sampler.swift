// Samples and trials of the disk, so that no request to the admin socket waits long for a stalled disk, and the rate of
// received content.

import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSpool

/// Tries out the spool every few seconds, reads its free space when asked, and lists the partial uploads.
///
/// Each task has its own thread. Thread-safe.
final class Sampler: Sendable {
    struct Sample: Sendable {
        /// The space on the spool's file system; nil if unknown.
        var space: FileSystemSpace?
        /// Why the last trial of the spool failed; nil if it succeeded.
        var fault: String?
        /// When expired uploads were last removed; nil if they never were.
        var lastPurge: WallTime?
        /// The nodes whose daemons are running or have crashed; empty if the spool is not shared.
        var nodes: [SpoolNode] = []
    }

    private struct State {
        var sample = Sample()
        var partial: [PartialUpload] = []
        /// The time after which the disk counts as unresponsive if no new sample was taken.
        var patience = Deadline.after(Sampler.patience)
        var isStarted = false
        /// The number of requests for the free space, and of those that the last reading answers.
        var requested = 0
        var completed = 0
    }

    /// The longest wait for the free space; the last reading is used then.
    private static let spacePatience = Duration.milliseconds(500)

    private static let interval = Duration.seconds(5)
    private static let patience = Duration.seconds(60)
    private static let partialInterval = Duration.seconds(10)
    /// Twice the number that is shown, because requests may resume some uploads before the next search.
    private static let maximumPartial = 2 * Status.maximum

    private let spool: Spool
    private let space: @Sendable () -> FileSystemSpace?
    private let state = Monitor(State())

    /// Creates a sampler; `space` returns the free space of the spool, or nil if it cannot be read.
    init(_ spool: Spool, space: @escaping @Sendable () -> FileSystemSpace?) {
        self.spool = spool
        self.space = space
    }

    /// Takes a first sample and starts the threads; searches for partial uploads only while `hasPartial` returns true.
    func start(hasPartial: @escaping @Sendable () -> Bool) throws(SystemError) {
        look(turn: 0)
        try Thread.start(name: "sampler") { [self] in
            for turn in 1... {
                Thread.pause(Self.interval)
                look(turn: turn)
            }
        }
        try Thread.start(name: "sampler-space") { [self] in while true { readSpace() } }
        state.update { $0.isStarted = true }
        try Thread.start(name: "sampler-partial") { [self] in
            while true {
                let watch = Stopwatch()
                lookForPartial(isThere: hasPartial())
                // A walk through a large spool takes long, so walks get at most one percent of the time.
                let walk = Duration.nanoseconds(watch.nanoseconds)
                Thread.pause(max(Self.partialInterval, walk * 99))
            }
        }
    }

    /// Updates the list of partial uploads.
    ///
    /// If `isThere` is false, empties the list without a search.
    func lookForPartial(isThere: Bool) {
        // An unreadable spool is reported by its own check; the last list is outdated.
        let found = isThere ? try? spool.newestPartial(maximum: Self.maximumPartial) : nil
        state.update { $0.partial = found ?? [] }
    }

    private func look(turn: Int) {
        var (nodes, fault): ([SpoolNode], String?) = ([], nil)
        do throws(SpoolError) {
            try spool.tryOut(turn: turn)
            if spool.isShared { nodes = try spool.nodes() }
        } catch {
            fault = error.sentence
        }
        let (space, lastPurge) = (self.space(), spool.lastPurge)
        state.update { state in
            state.sample = Sample(space: space, fault: fault, lastPurge: lastPurge, nodes: nodes)
            state.patience = .after(Self.patience)
        }
    }

    /// Waits for a request for the free space, and reads it.
    private func readSpace() {
        let requested = state.wait(until: .after(.seconds(3600))) { state in
            state.requested > state.completed ? state.requested : nil
        }
        guard let requested else { return }
        let space = self.space()
        state.update { state in
            state.sample.space = space
            state.completed = requested
        }
    }

    /// The last sample, with the free space as of now unless the disk stalls.
    var sample: Sample {
        let request = state.update { state -> Int? in
            guard state.isStarted else { return nil }
            state.requested += 1
            return state.requested
        }
        guard let request else { return state.update { $0.sample } }
        let sample = state.wait(until: .after(Self.spacePatience)) { state in
            state.completed >= request ? state.sample : nil
        }
        return sample ?? state.update { $0.sample }
    }

    /// The partial uploads, newest activity first; some may have been completed or removed since the search.
    var partial: [PartialUpload] { state.update { $0.partial } }

    /// Why the spool cannot receive content; nil if it can.
    var fault: String? {
        state.update { state in
            state.patience.hasPassed
                ? "the disk has not responded for a minute" : state.sample.fault
        }
    }
}

/// The rate at which content is received.
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

    /// Bytes per second since the last measurement; measured anew at most every two seconds.
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
