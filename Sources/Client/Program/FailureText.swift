// Why an upload was not accepted, in the command's words.
//
// Pure. Invariant: each sentence names the file and its URL, so that a single log line is enough.

import HTTPTypes
import ResumableUpload

enum FailureText {
    /// Returns the library's reason, with the command's option that may fix the problem.
    ///
    /// `isPlain` is true if the upload may have been sent as one ordinary request, because the file is small.
    static func sentence(
        _ error: TransferError,
        of options: Upload.Options,
        isPlain: Bool
    ) -> String {
        let remedy: String? =
            switch (error.kind, error.response?.status.code) {
            case (.paused, _): "; run the same command again to continue"
            case (.changed, _): " (after --cancel, or with --changed anew)"
            case (.unknownOutcome, _): "; --cancel removes its state, and the next run starts again"
            case (.unsupported, _): " (--creation plain)"
            case (.otherOrigin, _): " (--other-origin)"
            case (.refused, 401) where options.isAnonymous:
                "; use --netrc for a user and password in ~/.netrc, or -H for an Authorization field"
            case (.refused, 401): "; check the user and the password"
            case (.refused, _) where error.response?.namesTus == true:
                "; this server speaks tus, but this command supports only the IETF protocol"
            case (.refused, 412) where isPlain:
                "; if the server accepts only resumable uploads, use --creation careful"
            default: nil
            }
        return error.reason + (remedy ?? "")
    }

    /// Returns the sentence with the file's name, and with the URL unless the sentence already contains the URL.
    static func naming(_ source: UploadSource, _ sentence: String) -> String {
        let isNamed = sentence.contains(source.url)
        return "\(source.shown)\(isNamed ? "" : " to \(source.url)"): \(sentence)"
    }
}

extension Upload.Options {
    fileprivate var isAnonymous: Bool {
        if case .none = connection.credentials { !fields.contains(.authorization) } else { false }
    }
}
