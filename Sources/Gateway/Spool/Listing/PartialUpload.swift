// Partially received uploads, found by a walk through the spool.

package import SpoolgatePosix
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// One upload in `incoming` that has content.
package struct PartialUpload: Sendable, Equatable {
    /// Its identity.
    package let id: UploadID
    /// Its route.
    package let route: String
    /// Its path and the fields that name its file.
    package let naming: UploadNaming
    /// Its owner, if known.
    package let owner: String?
    /// Bytes received.
    package let offset: Int64
    /// The length of the complete content, if known.
    package let length: Int64?
    /// The time of the last change of content or state.
    package let lastActivity: WallTime

    /// Nil if the upload is in another queue or has an unreadable record.
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
    /// Returns the partial uploads that no process uses, most recently changed first, without locking any.
    ///
    /// Every name of the spool is read, and the record of each upload that has content. An upload without content or
    /// with an unreadable record is left out.
    ///
    /// - Parameter most: the maximum number of uploads that are returned and kept in memory.
    /// - Returns: the uploads; a request may have started using one of them.
    /// - Throws: `.disk` if the spool cannot be read.
    package func newestPartial(most: Int) throws(SpoolError) -> [PartialUpload] {
        var newest: [PartialUpload] = []
        try walk { (found) throws(SpoolError) in
            guard found.hasRecord, found.hasData else { return }
            let seen = try onDisk { () throws(SystemError) in
                try summary(of: found.id, knowing: nil)
            }
            guard let seen, !seen.isInUse, let upload = PartialUpload(seen) else { return }
            let place = newest.firstIndex { $0.lastActivity < upload.lastActivity }
            newest.insert(upload, at: place ?? newest.endIndex)
            if newest.count > most { newest.removeLast() }
        }
        return newest
    }
}
