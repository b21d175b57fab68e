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

    /// Returns the token with which to resume the upload of `source`; may send requests to the server and wait for
    /// them.
    ///
    /// - Parameters:
    ///   - token: the token of the interrupted upload, or nil if there is none.
    ///   - source: the file as it is now.
    ///   - options: how to reach the server.
    /// - Returns: the token, also if the file has changed and must be refused; nil to upload from the beginning.
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
