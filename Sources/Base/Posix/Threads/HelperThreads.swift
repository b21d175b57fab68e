// Threads for work that a request must not wait for.
//
// Invariant: every job runs once, and jobs start in order of arrival.

/// Starts threads for blocking jobs on demand and ends idle threads.
///
/// Thread-safe.
package final class HelperThreads: Sendable {
    /// The work of one job; it may block.
    package typealias Job = @Sendable () -> Void
    /// Runs a job once and soon, usually on another thread.
    package typealias Run = @Sendable (_ job: @escaping Job) -> Void

    private struct State {
        var jobs: [Job] = []
        var threads = 0
        var idle = 0
    }

    /// How long an idle thread waits before ending.
    private static let patience = Duration.seconds(10)

    private let state = Monitor(State())
    private let name: String
    private let maximum: Int

    /// Starts without a thread.
    ///
    /// Jobs wait while `maximum` threads are busy.
    ///
    /// Each thread gets the name `name`, at most 15 bytes.
    package init(name: String, maximum: Int) {
        self.name = name
        self.maximum = maximum
    }

    /// Runs a job once and soon, usually after this function has returned.
    ///
    /// If no helper thread is running and the system cannot create one, the calling thread runs the job.
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

    /// Waits for a job.
    ///
    /// If nil is returned, the thread must end and is no longer counted.
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
            // A job may have arrived since the timeout.
            if !state.jobs.isEmpty { return state.jobs.removeFirst() }
            state.threads -= 1
            return nil
        }
    }
}
