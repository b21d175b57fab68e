// What becomes of an interrupted upload whose file has changed since.
//
// The invariant: an upload that the server may have taken is never given up and begun anew by itself.

import ArgumentParser
import ResumableUpload

/// What a person wants if the file changed.
enum ChangedFile: String, CaseIterable, ExpressibleByArgument {
    /// The old upload is cancelled on the server, and the file is sent from its beginning.
    case anew
    /// The file is refused until the old upload is cancelled.
    case refuse

    /// The token that an upload of `source` goes on with; blocks if the server has to be asked.
    ///
    /// - Parameters:
    ///   - token: what was kept; nil: nothing.
    ///   - source: the file as it is now.
    ///   - options: how the server is reached.
    /// - Returns: the token, also of another file if that is to be refused; nil: begin anew.
    /// - Throws: if the server may have taken the old upload, or could not be asked.
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
