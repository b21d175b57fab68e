// The steps of a run between two requests.
//
// The invariant: a permanent fault ends the run at once.

import SpoolgateCurl
import SpoolgatePosix
import SpoolgateTextFormats

protocol TransferRun: AnyObject {
    /// The name in a sentence: `the upload to URL`.
    var name: String { get }
    var control: TransferControl { get }
    var connection: Transfer.Connection { get }
    var patience: RetryBackoff { get set }

    /// The token to resume an upload with after an error.
    var tokenLeft: Upload.Token? { get }
    func reportWaiting(_ pause: Duration, reason: String)
}

extension TransferRun {
    func error(
        _ kind: TransferError.Kind,
        _ reason: String,
        _ response: Transfer.Response? = nil
    ) -> TransferError {
        TransferError(kind, reason, response: response, token: tokenLeft)
    }

    func error(_ fault: ContentFault, in purpose: String) -> TransferError {
        error(fault.kind, "\(purpose): \(fault.reason)")
    }

    /// Throws if the owner has asked for a pause or a cancellation.
    func checkWish() throws(TransferError) {
        switch control.wish {
        case .run: return
        case .pause: throw error(.paused, "\(name) was paused")
        case .cancel: throw error(.cancelled, "\(name) was cancelled")
        }
    }

    /// Waits after a request without a response; throws if another attempt cannot succeed.
    func wait(after fault: ClientFault?, _ purpose: String) throws(TransferError) {
        try checkWish()
        let fault = fault ?? ClientFault(.noResponse, "no response")
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

    /// The duration in whole seconds, unless it is shorter than one second.
    private func text(_ duration: Duration) -> String {
        let seconds = duration.components.seconds
        return DurationText.text(seconds > 0 ? .seconds(seconds) : duration)
    }

    /// Waits before another attempt; throws if the time for attempts has passed, or if the owner asks the run to end.
    ///
    /// `reason` begins a sentence; `stated` is the pause that the server requests.
    func wait(_ reason: String, _ response: Transfer.Response?, _ stated: Duration?)
        throws(TransferError)
    {
        guard let pause = patience.next(stated) else {
            throw error(
                .later,
                "\(reason); no progress for \(text(connection.retryFor)), try again later",
                response
            )
        }
        reportWaiting(pause, reason: reason)
        control.wait(pause)
        try checkWish()
    }
}
