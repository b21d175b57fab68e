// Partially received uploads, found by a walk through the spool.

package import SpoolgatePosix
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// An incomplete upload with some received content.
package struct PartialUpload: Sendable, Equatable {
    package let id: UploadID
    package let route: String
    package let naming: UploadNaming
    package let owner: String?
    /// The number of bytes received.
    package let offset: Int64
    /// The length of the complete content in bytes, if known.
    package let length: Int64?
    /// The time of the last change of the content or the state.
    package let lastActivity: WallTime

    /// Returns nil if the upload is not in `incoming` or its record is unreadable.
    init?(_ summary: UploadSummary) {
        guard summary.queue == .incoming, let creation = summary.creation else { return nil }
        id = summary.id
        route = creation.route
        naming = UploadNaming(creation.head)
        owner = creation.principal?.text
        offset = summary.offset
        length = summary.length
        lastActivity = summary.lastActivity
    }
}

extension Spool {
    /// Returns the partial uploads that no process is using, most recently changed first, without locking any.
    ///
    /// Uploads without content or with unreadable records are left out.
    ///
    /// - Parameter maximum: the maximum number of uploads that are returned and kept in memory.
    /// - Returns: the uploads; a request may already be using one of them again.
    /// - Throws: `.disk` if the spool cannot be read.
    package func newestPartial(maximum: Int) throws(SpoolError) -> [PartialUpload] {
        var newest: [PartialUpload] = []
        try walk { (found) throws(SpoolError) in
            guard found.hasRecord, found.hasData else { return }
            let seen = try reporting(summary(of: found.id, knowing: nil))
            guard let seen, !seen.isInUse, let upload = PartialUpload(seen) else { return }
            let place = newest.firstIndex { $0.lastActivity < upload.lastActivity }
            newest.insert(upload, at: place ?? newest.endIndex)
            if newest.count > maximum { newest.removeLast() }
        }
        return newest
    }
}
