// Why an upload was not taken, in the command's words.
//
// Pure. The invariant: each sentence names the file and where it goes, so that one line of a log says all.

import HTTPTypes
import ResumableUpload

/// Sentences of failures.
enum FailureText {
    /// The library's reason with what a person can do by this command.
    ///
    /// - Parameters:
    ///   - error: why the upload ended.
    ///   - options: how it was sent.
    ///   - isPlain: whether it may have been sent by one ordinary request because the file is small.
    /// - Returns: one sentence.
    static func sentence(
        _ error: TransferError,
        of options: Upload.Options,
        isPlain: Bool
    ) -> String {
        let remedy: String? =
            switch (error.kind, error.answer?.status.code) {
            case (.paused, _): "; run the same command again to continue"
            case (.changed, _): " (after --cancel, or with --changed anew)"
            case (.unknownOutcome, _): "; --cancel removes its state, and the next run starts again"
            case (.unsupported, _): " (--creation plain)"
            case (.otherOrigin, _): " (--other-origin)"
            case (.refused, 401) where options.isAnonymous:
                "; use --netrc for a user and password in ~/.netrc, or -H for an Authorization field"
            case (.refused, 401): "; check the user and the password"
            case (.refused, _) where error.answer?.namesTus == true:
                "; this server speaks tus, but this command supports only the IETF protocol"
            case (.refused, 412) where isPlain:
                "; if the server accepts only resumable uploads, use --creation careful"
            default: nil
            }
        return error.reason + (remedy ?? "")
    }

    /// A sentence that names the file, and the URL if it does not already.
    static func naming(_ source: UploadSource, _ sentence: String) -> String {
        let isNamed = sentence.contains(source.url)
        return "\(source.shown)\(isNamed ? "" : " to \(source.url)"): \(sentence)"
    }
}

extension Upload.Options {
    /// Whether they have neither a field Authorization nor a file of passwords.
    fileprivate var isAnonymous: Bool {
        if case .none = connection.credentials { !fields.contains(.authorization) } else { false }
    }
}
