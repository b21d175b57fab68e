// Uploads made of other uploads (tus, "concatenation").
//
// Each part names the final upload before the final upload is complete. The parts are then consumed. Invariant: content
// is in the parts until it is in the final upload, and each part leads to it.

import HTTPTypes
package import SpoolgateUploadProtocol

extension UploadCreation {
    /// The uploads from which this one is concatenated (tus), in order; nil for other uploads.
    package var parts: [UploadID]? {
        guard kind.isFinal,
            case .final(let urls)? = head.fields[.uploadConcat].flatMap(UploadConcat.init)
        else { return nil }
        // Every form of URL ends with the identity.
        return urls.compactMap { UploadID($0.suffix(UploadID.characterCount)) }
    }
}

extension Upload {
    /// The upload into which this one is concatenated (tus), which may no longer exist.
    package var final: UploadID? { record.state.final }

    /// Records the upload into which this one is concatenated.
    ///
    /// The change is durable on return if this upload has a durable offset.
    ///
    /// - Throws: `.disk`; the state is then unchanged.
    package func goInto(_ final: UploadID) throws(SpoolError) {
        try require(that: queue == .incoming)
        try record.write(durably: creation.promise == .powerCut && isPromised) { $0.final = final }
    }

    /// Removes the content of this upload, which then refers to `location`, the upload into which it was concatenated.
    ///
    /// The change is durable on return if this upload has a durable offset.
    ///
    /// - Throws: `.disk`; the concatenated upload must then not be delivered, because its parts could be concatenated
    ///   again after its removal.
    package func consume(for location: String) throws(SpoolError) {
        // The process that consumed this upload may have crashed before the change was durable.
        guard queue == .incoming else { return try sync() }
        let head = ResponseHead(status: .noContent, fields: [.location: location])
        try finish(with: StoredResponse(head: head, content: nil))
    }

    /// Appends the content of another upload, sharing its blocks on the disk if the file system can.
    ///
    /// - Throws: the errors of `append(_:)`.
    package func append(contentOf part: Upload) throws(SpoolError) {
        try require(that: queue == .incoming)
        try content.append(contentOf: part.content)
    }
}
