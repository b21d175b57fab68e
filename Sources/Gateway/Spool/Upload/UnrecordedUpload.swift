// Uploads without a record: no other request can find them, and their content is never durable.
//
// Invariant: all content is removed when the upload is unlocked or the process ends.

package import SpoolgatePosix

extension Upload {
    /// The maximum number of bytes that stay in the receiving buffer; larger content is moved to a file.
    package static let mostInBuffer = 128 << 10

    /// Keeps the buffer that has received all content of an upload without a record; `unlock()` returns it to the pool.
    package func keep(_ buffer: ContentBuffer) { content.keep(buffer) }
}

extension Spool {
    /// Creates an empty upload without a record, which exists only during its request.
    ///
    /// `expected` is the expected number of bytes of content; 0 if unknown.
    ///
    /// - Throws: `.full`, `.fewFiles` or `.overQuota` if the content needs a file and there is no room for it.
    package func createUnrecorded(
        _ creation: consuming UploadCreation,
        expecting expected: Int64
    ) throws(SpoolError) -> Upload {
        if expected > Upload.mostInBuffer { try room.check(for: expected, makesFile: true) }
        let files = UploadFiles(of: creation.id, .none, in: self, record: nil)
        return Upload(spool: self, lock: nil, creation: creation, files: files)
    }
}
