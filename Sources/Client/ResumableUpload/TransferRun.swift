// What every run does between two requests: heed its owner, tell a fault that passes from one that stays, wait.
//
// The invariant: what cannot get better by waiting ends the run at once.

import SpoolgateCurl
import SpoolgatePosix
import SpoolgateTextFormats

/// A run of an upload, a download or a cancellation.
protocol TransferRun: AnyObject {
    /// What is run, in a sentence: `the upload to URL`.
    var name: String { get }
    var control: TransferControl { get }
    var connection: Transfer.Connection { get }
    var patience: RetryBackoff { get set }

    /// What an upload can be resumed with after an error; nil: nothing.
    var tokenLeft: Upload.Token? { get }
    /// Tells that it waits, and why.
    func tellWaiting(_ pause: Duration, reason: String)
}

extension TransferRun {
    /// An error of this run, with what to resume with.
    func error(
        _ kind: TransferError.Kind,
        _ reason: String,
        _ answer: Transfer.Answer? = nil
    ) -> TransferError {
        TransferError(kind, reason, answer: answer, token: tokenLeft)
    }

    /// The error of content that could not be read or written, with what was attempted.
    func error(_ fault: ContentFault, in purpose: String) -> TransferError {
        error(fault.kind, "\(purpose): \(fault.reason)")
    }

    /// Throws where the owner wants an end.
    func checkWish() throws(TransferError) {
        switch control.wish {
        case .run: return
        case .pause: throw error(.paused, "\(name) was paused")
        case .cancel: throw error(.cancelled, "\(name) was cancelled")
        }
    }

    /// Waits after a request that was not answered; throws where another try cannot do better.
    func wait(after fault: ClientFault?, _ purpose: String) throws(TransferError) {
        try checkWish()
        let fault = fault ?? ClientFault(.noAnswer, "no response")
        switch fault.kind {
        case .notTried: throw error(.invalid, "\(purpose) was not attempted: \(fault.reason)")
        case .noTLS where !fault.mayPass:
            throw error(
                .untrusted,
                "\(purpose): the TLS connection is not trusted: \(fault.reason); check the server's "
                    + "certificate and the certificate authorities"
            )
        default: try wait("\(purpose): \(fault.reason)", nil, nil)
        }
    }

    /// A duration in whole seconds, if it has one.
    private func text(_ duration: Duration) -> String {
        let seconds = duration.components.seconds
        return DurationText.text(seconds > 0 ? .seconds(seconds) : duration)
    }

    /// Waits before another try.
    ///
    /// - Parameters:
    ///   - reason: why: the beginning of a sentence.
    ///   - answer: what the server said.
    ///   - told: for how long it asked.
    /// - Throws: where the time for that is over, or the owner wants an end.
    func wait(_ reason: String, _ answer: Transfer.Answer?, _ told: Duration?) throws(TransferError)
    {
        guard let pause = patience.next(told) else {
            throw error(
                .later,
                "\(reason); no progress for \(text(connection.retryFor)), try again later",
                answer
            )
        }
        tellWaiting(pause, reason: reason)
        control.wait(pause)
        try checkWish()
    }
}
