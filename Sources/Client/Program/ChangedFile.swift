// The treatment of an interrupted upload whose file has changed.
//
// Invariant: an upload that the server may have accepted is never abandoned and sent again without the user's consent.

import ArgumentParser
import ResumableUpload

enum ChangedFile: String, CaseIterable, ExpressibleByArgument {
    /// Cancel the old upload, and send the file from its beginning.
    case anew
    /// Refuse the file until the old upload is cancelled.
    case refuse

    /// Returns the token with which to resume the upload of `source`; may send requests and wait for them.
    ///
    /// - Returns: the token, even if the file has changed and must be refused; nil to upload the file from its
    ///   beginning.
    /// - Throws: `TransferError` if the server may have accepted the old upload, or does not respond.
    func token(
        _ token: Upload.Token?,
        for source: UploadSource,
        _ options: Upload.Options
    ) throws(TransferError) -> Upload.Token? {
        guard self == .anew, let token, let stated = token.fingerprint,
            let present = source.fingerprint, stated != present
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
