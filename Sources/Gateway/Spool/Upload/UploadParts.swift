// Uploads made of other uploads (tus, "concatenation").
//
// A part says to which upload it goes before that one is whole; that it is whole is the instant from which on
// the parts are consumed. Invariant: content is in the parts until it is in the upload made of them, and
// whoever finds a part finds that upload by it.

import HTTPTypes
package import SpoolgateUploadProtocol

extension UploadCreation {
    /// The parts of an upload that is made of parts, in their order; nil: it is not.
    package var parts: [UploadID]? {
        guard kind.isFinal,
            case .final(let urls)? = head.fields[.uploadConcat].flatMap(UploadConcat.init)
        else { return nil }
        // The identity ends a URL in whatever form, and whichever route it had then.
        return urls.compactMap { UploadID($0.suffix(UploadID.characterCount)) }
    }
}

extension Upload {
    /// The upload that takes this one as a part, as far as that one exists; nil: none does.
    package var final: UploadID? { record.state.final }

    /// Says which upload takes this one as a part.
    ///
    /// Durable on return, as far as anything of it is.
    ///
    /// - Throws: `.disk`; then it says what it said before.
    package func goInto(_ final: UploadID) throws(SpoolError) {
        try require(queue == .incoming)
        try record.write(durably: creation.promise == .powerCut && isPromised) { $0.final = final }
    }

    /// Leaves of a part only which upload it went into: a reference to that one.
    ///
    /// Durable on return, as far as anything of it is.
    ///
    /// - Throws: `.disk`; then that upload must not be delivered, since its parts would go into another one
    ///   once it is removed.
    package func consume(for location: String) throws(SpoolError) {
        // Who consumed it may have died before that was durable.
        guard queue == .incoming else { return try sync() }
        let head = ResponseHead(status: .noContent, fields: [.location: location])
        try finish(with: StoredResponse(head: head, content: nil))
    }

    /// Appends the whole content of a part, shared with it where the file system can.
    ///
    /// - Throws: `.full` below the reserve or when the disk is, `.overQuota`, `.disk`.
    package func append(contentOf part: Upload) throws(SpoolError) {
        try require(queue == .incoming)
        try content.append(contentOf: part.content)
    }
}
