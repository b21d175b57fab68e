// Uploads made of other uploads (tus, "concatenation").
//
// A part says to which upload it goes before that one is whole; that it is whole is the instant from which on
// the parts are consumed. Invariant: content is in the parts until it is in the upload made of them, and
// whoever finds a part finds that upload by it.

package import UploadProtocol

extension Upload {
    /// The upload that takes this one as a part, as far as that one exists; nil: none does.
    package var final: UploadID? { files.state.final }

    /// Says which upload takes this one as a part.
    ///
    /// Durable on return, as far as anything of it is.
    ///
    /// - Throws: `.disk`; then it says what it said before.
    package func goInto(_ final: UploadID) throws(SpoolError) {
        try require(queue == .incoming)
        try files.write(durably: creation.promise == .powerCut && isPromised) { $0.final = final }
    }

    /// Appends the whole content of a part, shared with it where the file system can.
    ///
    /// - Throws: `.full` below the reserve or when the disk is, `.overQuota`, `.disk`.
    package func append(contentOf part: Upload) throws(SpoolError) {
        try require(queue == .incoming)
        try files.append(contentOf: part.files)
    }
}
