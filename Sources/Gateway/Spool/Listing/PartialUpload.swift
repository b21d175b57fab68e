// The uploads of which a part was received, by a walk of the spool.

package import SpoolgatePosix
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// One upload in `incoming` that has content.
package struct PartialUpload: Sendable, Equatable {
    /// Its identity.
    package let id: UploadID
    /// Its route.
    package let route: String
    /// Its path, and what names its file.
    package let naming: UploadNaming
    /// Who it belongs to, as far as that is known.
    package let owner: String?
    /// Bytes received.
    package let offset: Int64
    /// Bytes of the whole, where they are known.
    package let length: Int64?
    /// When content or state last changed.
    package let lastActivity: WallTime

    /// Nil for an upload that is elsewhere or has an unreadable record.
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
    /// The partial uploads that no process uses, the one that changed last first, without locking any.
    ///
    /// Every name of the spool is read, and the record of each upload that has content. An upload without a byte is
    /// left out, and so is one whose record cannot be read.
    ///
    /// - Parameter most: how many are returned at most, and kept in memory.
    /// - Returns: the uploads; a request may use one of them by now.
    /// - Throws: `.disk` if the spool cannot be looked at.
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
