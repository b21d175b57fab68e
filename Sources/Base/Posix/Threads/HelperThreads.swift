// Threads that do what a request must not wait for.
//
// Invariant: every job is run once, in the order in which they came, as far as threads are free.

/// Threads that run jobs which block, started as they are needed; one that has had no job for a while ends.
///
/// Any thread.
package final class HelperThreads: Sendable {
    /// Something to do.
    package typealias Job = @Sendable () -> Void
    /// Has a job run, soon and once, most likely on another thread.
    package typealias Run = @Sendable (_ job: @escaping Job) -> Void

    private struct State {
        var jobs: [Job] = []
        var threads = 0
        /// Threads that wait for a job.
        var idle = 0
    }

    /// How long a thread waits for its next job.
    private static let patience = Duration.seconds(10)

    private let state = Monitor(State())
    private let name: String
    private let maximum: Int

    /// Begins without a thread.
    ///
    /// - Parameters:
    ///   - name: of each thread, 15 bytes at most.
    ///   - maximum: most threads; further jobs wait until one is free.
    package init(name: String, maximum: Int) {
        self.name = name
        self.maximum = maximum
    }

    /// Has a job run, soon and once.
    ///
    /// If the system has no room for a thread and none is there, the calling thread runs it.
    @Sendable package func run(_ job: @escaping Job) {
        let startsThread = state.update { state in
            state.jobs.append(job)
            guard state.idle < state.jobs.count, state.threads < maximum else { return false }
            state.threads += 1
            return true
        }
        guard startsThread else { return }
        do throws(SystemError) {
            try Thread.start(name: name) { [self] in work() }
        } catch {
            let isAlone = state.updateQuietly { state in
                state.threads -= 1
                return state.threads == 0
            }
            while isAlone, let job = takeJob() { job() }
        }
    }

    private func takeJob() -> Job? {
        state.updateQuietly { $0.jobs.isEmpty ? nil : $0.jobs.removeFirst() }
    }

    private func work() {
        while let job = takeJob() ?? waitForJob() { job() }
    }

    /// Waits for a job; nil: none came, and the thread is no longer counted.
    private func waitForJob() -> Job? {
        state.updateQuietly { $0.idle += 1 }
        let job = state.wait(until: .after(Self.patience), isQuiet: true) { state -> Job? in
            guard !state.jobs.isEmpty else { return nil }
            state.idle -= 1
            return state.jobs.removeFirst()
        }
        if let job { return job }
        return state.updateQuietly { state in
            state.idle -= 1
            // One may have come since.
            if !state.jobs.isEmpty { return state.jobs.removeFirst() }
            state.threads -= 1
            return nil
        }
    }
}
