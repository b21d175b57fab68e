// Uploads without a record: nobody can come back for one, and nothing of it is ever made durable.
//
// Its content is in the buffer that received it while it is little, else in a nameless file. Invariant: all of it is
// gone once it is unlocked, and with the process.

package import SpoolgatePosix

extension Upload {
    /// Most content, in bytes, that an upload without a record keeps in the buffer that received it.
    package static let mostInBuffer = 128 << 10

    /// Keeps the buffer that has received all of its content, as an upload without a record may; it goes back to the
    /// pool when the upload is unlocked.
    package func keep(_ buffer: ContentBuffer) { content.keep(buffer) }
}

extension Spool {
    /// Makes an upload without a record.
    ///
    /// - Parameters:
    ///   - creation: what the upstream is sent.
    ///   - expected: bytes that are to come, as far as known.
    /// - Returns: the upload, empty.
    /// - Throws: `.full`, `.fewFiles` or `.overQuota` where they need a file and there is no room for it.
    package func createUnrecorded(
        _ creation: consuming UploadCreation,
        expecting expected: Int64
    ) throws(SpoolError) -> Upload {
        if expected > Upload.mostInBuffer { try room.check(for: expected, makesFile: true) }
        let files = UploadFiles(of: creation.id, .none, in: self, record: nil)
        return Upload(spool: self, lock: nil, creation: creation, files: files)
    }
}
