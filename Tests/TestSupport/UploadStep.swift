// The steps that change an upload's phase: what the spool must do, and what docs/STATES.md shows.

package import SpoolgateUploadProtocol

extension UploadState {
    /// Events that change the phase of an upload, other than a request's content.
    package enum Step: String, Sendable, CaseIterable {
        case attempt
        /// The final response is stored: the upstream's, or that of a check before the attempt.
        case response = "final response"
        /// The delivery is due later, after a 202 or because an attempt failed and a retry is safe.
        case postponed
        /// The upstream did not respond, and a retry is not safe.
        case silence = "no response"
        /// The upload was refused after a 202 or after its client had disconnected, or it expired in the queue.
        case failure
        case hold
        case requeue
        /// Content that was never durable was lost.
        case loss
    }

    /// Returns the phase after a step, or nil if the step is impossible.
    package static func phase(after step: Step, in phase: Phase) -> Phase? {
        switch (phase, step) {
        case (.receiving, .attempt), (.deferred, .attempt): .delivering
        case (.receiving, .response), (.deferred, .response), (.delivering, .response): .delivered
        case (.receiving, .postponed), (.deferred, .postponed), (.delivering, .postponed): .deferred
        case (.delivering, .silence): .indeterminate
        case (.receiving, .failure), (.deferred, .failure), (.delivering, .failure): .failed
        case (.deferred, .hold): .held
        case (.deferred, .requeue), (.indeterminate, .requeue), (.failed, .requeue),
            (.held, .requeue):
            .deferred
        case (.deferred, .loss): .receiving
        default: nil
        }
    }
}
