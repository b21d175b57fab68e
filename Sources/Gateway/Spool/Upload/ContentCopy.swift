// Gives an upload its own data file if the file has another name outside the spool.
//
// A file that was dropped into a directory or handed over by its path is a hard link to the data file. Such a file must
// not change if the upload then continues from an earlier offset. Invariant: until the new name is durable, the new
// file has a second name, so that the next process that opens the upload copies it again.

import SpoolgatePosix

/// A copy of the start of an upload's data file, which the copy has replaced.
struct ContentCopy {
    let file: OpenFile

    /// The prefix of the copy's second name, which is in `tmp`.
    static let mark = "content."

    private let spool: Spool
    private let directory: Directory
    private let secondName: String

    /// Copies the first `count` bytes of a data file, syncs the copy and replaces the data file with it.
    ///
    /// The upload's record must be locked. If an error is thrown, the old data file is still in place.
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
        let made = try disk.create(secondName, in: temporary)
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

    /// Makes the copy's name durable and then removes its second name.
    func settle() throws(SystemError) {
        try spool.disk.syncDirectory(directory)
        try spool.disk.unlink(secondName, in: spool.layout.temporary)
    }
}
