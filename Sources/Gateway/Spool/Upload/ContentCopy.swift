// Gives an upload a content file of its own if its file has another name outside the spool.
//
// A file that was dropped into a directory, or handed over by its path, is a hard link to the content file. After a
// power cut the upload may go on from an earlier offset, and its file is then cut and written to; the file that others
// have must stay as it was. Invariant: until the new name survives a power cut, the new file has two names, so that
// the next process that opens the upload does this again.

import SpoolgatePosix

/// A copy of the first bytes of an upload's content, in the place of the content's file.
struct ContentCopy {
    /// The new file, locked; its content is durable.
    let file: OpenFile

    /// What its second name begins with.
    static let mark = "content."

    private let spool: Spool
    private let directory: Directory
    private let secondName: String

    /// Replaces the content's file.
    ///
    /// - Parameters:
    ///   - data: the content's file, of an upload whose record is locked.
    ///   - name: the upload's.
    ///   - count: bytes to keep.
    ///   - spool: where the upload is.
    /// - Throws: where it could not be replaced, and the old file is in its place still.
    init(
        of data: OpenFile,
        _ name: FileName,
        keeping count: Int64,
        in spool: Spool
    ) throws(SystemError) {
        self.spool = spool
        directory = spool.layout.directory(of: name)
        secondName = Self.mark + TemporaryName.next()
        let (disk, temporary) = (spool.disk, spool.layout.temporary)
        let owner = try spool.layout.root.status().owner
        let made = try disk.create(secondName, in: temporary, owner: owner)
        file = OpenFile(made, name.data, in: directory)
        let moved = TemporaryName.next()
        do throws(SystemError) {
            try file.descriptor.lock(subject: file.subject)
            var end: Int64 = 0
            try disk.copy(
                data.descriptor,
                count: count,
                to: file.descriptor,
                at: &end,
                subject: file.subject
            )
            try disk.sync(file)
            try disk.link(file.descriptor, as: moved, in: temporary)
            try disk.rename(moved, in: temporary, to: name.data, in: directory)
        } catch {
            for left in [secondName, moved] { _ = try? disk.unlink(left, in: temporary) }
            throw error
        }
    }

    /// Makes its name durable, and says so.
    ///
    /// - Throws: where the name may not survive a power cut.
    func settle() throws(SystemError) {
        try spool.disk.syncDirectory(directory)
        try spool.disk.unlink(secondName, in: spool.layout.temporary)
    }
}
