// Uploads made of other uploads (tus, "concatenation").
//
// Each part names the final upload before that is complete; then the parts are consumed. Invariant: content is in the
// parts until it is in the final upload, and each part leads to the final upload.

import HTTPTypes
package import SpoolgateUploadProtocol

extension UploadCreation {
    /// The parts of a final upload in order; nil for other uploads.
    package var parts: [UploadID]? {
        guard kind.isFinal,
            case .final(let urls)? = head.fields[.uploadConcat].flatMap(UploadConcat.init)
        else { return nil }
        // Every form of URL ends with the identity.
        return urls.compactMap { UploadID($0.suffix(UploadID.characterCount)) }
    }
}

extension Upload {
    /// The upload that uses this one as a part, which may not exist; nil: none.
    package var final: UploadID? { record.state.final }

    /// Records which upload uses this one as a part.
    ///
    /// Durable on return if the upload has a durable offset.
    ///
    /// - Throws: `.disk`; the state is unchanged then.
    package func goInto(_ final: UploadID) throws(SpoolError) {
        try require(queue == .incoming)
        try record.write(durably: creation.promise == .powerCut && isPromised) { $0.final = final }
    }

    /// Reduces a part to a reference to the upload that has used it.
    ///
    /// Durable on return if the upload has a durable offset.
    ///
    /// - Throws: `.disk`; the final upload must not be delivered then, because its parts could be used again after its
    ///   removal.
    package func consume(for location: String) throws(SpoolError) {
        // The process that consumed it may have crashed before that was durable.
        guard queue == .incoming else { return try sync() }
        let head = ResponseHead(status: .noContent, fields: [.location: location])
        try finish(with: StoredResponse(head: head, content: nil))
    }

    /// Appends the content of a part, sharing its blocks if the file system can.
    ///
    /// - Throws: as `append(_:)`.
    package func append(contentOf part: Upload) throws(SpoolError) {
        try require(queue == .incoming)
        try content.append(contentOf: part.content)
    }
}
