// The treatment of an interrupted upload whose file has changed.
//
// The invariant: if the server may have accepted an upload, it is never abandoned and sent again without the user's
// consent.

import ArgumentParser
import ResumableUpload

enum ChangedFile: String, CaseIterable, ExpressibleByArgument {
    /// Cancel the old upload on the server, and send the file from its beginning.
    case anew
    /// Refuse the file until the old upload is cancelled.
    case refuse

    /// Returns the token to resume an upload of `source` with; blocks while the server is asked.
    ///
    /// - Parameters:
    ///   - token: the token of the interrupted upload; nil: none.
    ///   - source: the file as it is now.
    ///   - options: how to reach the server.
    /// - Returns: the token, even if it is of another file that is to be refused; nil: start again.
    /// - Throws: `TransferError` if the server may have accepted the old upload, or does not respond.
    func token(
        _ token: Upload.Token?,
        for source: UploadSource,
        _ options: Upload.Options
    ) throws(TransferError) -> Upload.Token? {
        guard self == .anew, let token, let told = token.fingerprint,
            let present = source.fingerprint, told != present
        else { return token }
        if token.mayBeComplete, try !Upload.isPartial(token, options: options) {
            throw TransferError(
                .unknownOutcome,
                "the file changed, but the server may have accepted the old one at \(token.target); "
                    + "check whether it has it",
                token: token
            )
        }
        try Upload.remove(token, options: options)
        return nil
    }
}
