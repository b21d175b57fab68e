// The trial of the spool: the calls of an upload, with a file that belongs to no upload.
//
// Invariant: a trial that a crash interrupts leaves at most a file in `tmp`, which recovery removes.

import SpoolgatePosix

extension Spool {
    private static let trialContent = Array("spoolgate trial\n".utf8)

    /// Tries what an upload needs: usable directories, and a file that can be created, written, synced, read and
    /// removed.
    ///
    /// A full disk is no error here, because uploads that need no space continue; neither is a lack of file descriptors
    /// or memory.
    ///
    /// - Parameter turn: the number of the trial; each turn creates a file in another directory of uploads.
    /// - Throws: `.disk` if an upload would currently fail.
    package func tryOut(turn: Int = 0) throws(SpoolError) {
        do throws(SystemError) {
            try layout.checkPlaces()
            // A file without a name is never mistaken for an upload, even after a crash.
            _ = try disk.createNameless(in: layout.uploads[turn % layout.uploads.count])
            _ = try disk.createNameless(in: layout.temporary)
            try writeTrial()
        } catch {
            guard error.isFull || error.isExhausted else { throw .disk(error) }
        }
    }

    private func writeTrial() throws(SystemError) {
        let (directory, name) = (layout.temporary, "trial.\(TemporaryName.next())")
        let file = OpenFile(try disk.create(name, in: directory), name, in: directory)
        do throws(SystemError) {
            try disk.write(Self.trialContent, to: file, at: 0)
            try disk.sync(file)
            try disk.syncDirectory(directory)
            guard try file.bytes(at: 0, count: Self.trialContent.count) == Self.trialContent else {
                throw SystemError(call: "pread", subject: file.subject, errno: SystemError.lost)
            }
        } catch {
            // While the disk fails, each trial would leave a file.
            _ = try? disk.unlink(name, in: directory)
            throw error
        }
        try disk.unlink(name, in: directory)
    }
}
