// Threads for work that a request must not wait for.
//
// Invariant: every job runs once. Jobs start in their order of arrival, as threads become free.

/// Threads for blocking jobs, started on demand and ended when idle.
///
/// Thread-safe.
package final class HelperThreads: Sendable {
    /// The work of one job; it may block.
    package typealias Job = @Sendable () -> Void
    /// A function that runs a job once and soon, usually on another thread.
    package typealias Run = @Sendable (_ job: @escaping Job) -> Void

    private struct State {
        var jobs: [Job] = []
        var threads = 0
        var idle = 0
    }

    /// How long an idle thread waits for its next job before it ends.
    private static let patience = Duration.seconds(10)

    private let state = Monitor(State())
    private let name: String
    private let maximum: Int

    /// Starts without a thread.
    ///
    /// - Parameters:
    ///   - name: the name of each thread, at most 15 bytes.
    ///   - maximum: the maximum number of threads; further jobs wait.
    package init(name: String, maximum: Int) {
        self.name = name
        self.maximum = maximum
    }

    /// Runs a job once and soon.
    ///
    /// Usually returns before the job has run. If there is no thread and the system cannot create one, the calling
    /// thread runs the job.
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

    /// Waits for a job; returns nil if none arrived, in which case the thread must end and is no longer counted.
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
            // A job may have arrived since.
            if !state.jobs.isEmpty { return state.jobs.removeFirst() }
            state.threads -= 1
            return nil
        }
    }
}
