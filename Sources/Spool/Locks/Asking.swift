// How a request in one process asks the holder of an upload in another one to let go.
//
// By kernel locks alone. Who waits marks the data file, and the file `format`, so that nobody has to
// look at every upload while nobody waits; each daemon looks several times a second. Invariant: a mark
// lasts no longer than the wait, because it goes with the open file.

import Posix
import UploadProtocol

extension Spool {
    /// Asks holders in this process to let go of the uploads that requests in other processes wait for.
    ///
    /// To be called several times a second; three system calls while nobody waits. A holder that
    /// delivers is not asked: it is waited for.
    ///
    /// - Throws: `.disk` when the file `format` cannot be looked at.
    package func askForOthers() throws(SpoolError) {
        let isAnyWanted = try onDisk { () throws(SystemError) in
            guard let format = try openFormat() else { return false }
            return try format.descriptor.isMarkedElsewhere(subject: format.subject)
        }
        guard isAnyWanted else { return }
        // One that cannot be looked at now is looked at the next time.
        for id in holders.receiving() where (try? isWanted(id)) == true { holders.ask(id) }
    }

    /// Asks every request of this process that receives into an upload to let go of it: its client can
    /// resume.
    package func askAll() {
        for id in holders.receiving() { holders.ask(id) }
    }

    private func isWanted(_ id: UploadID) throws(SystemError) -> Bool {
        let name = FileName(id)
        guard let data = try OpenFile.open(name.name, in: layout.data[name], forWriting: false)
        else { return false }
        return try data.descriptor.isMarkedElsewhere(subject: data.subject)
    }

    /// Runs `wait` while the upload with the data file `data` is marked as wanted.
    func whileWanting<R>(
        _ data: OpenFile,
        _ wait: () throws(SpoolError) -> R
    ) throws(SpoolError) -> R {
        let format = try onDisk { () throws(SystemError) in
            let format = try openFormat()
            try data.descriptor.setMark(true, subject: data.subject)
            try format?.descriptor.setMark(true, subject: "format")
            return format
        }
        defer {
            // The file stays open if the lock was won; its holder does not want it from itself.
            try? data.descriptor.setMark(false, subject: data.subject)
            withExtendedLifetime(format) {}
        }
        return try wait()
    }

    private func openFormat() throws(SystemError) -> OpenFile? {
        try OpenFile.open("format", in: layout.root, forWriting: false)
    }
}
