// How a request in one process requests the release of an upload that another process has locked.
//
// By kernel locks alone. A request that waits marks the record, and the file `format`, so that
// nobody has to look at every upload while nobody waits; each daemon looks several times a second.
// Invariant: a mark lasts no longer than the wait, because it goes with the open file.

import SpoolgatePosix
import SpoolgateUploadProtocol

extension Spool {
    /// Requests the release of the uploads that requests in other processes wait for.
    ///
    /// To be called several times a second: no system call while this process receives no upload, else three while
    /// no request waits. An upload that is being delivered is waited for instead.
    ///
    /// - Throws: `.disk` when the file `format` cannot be looked at.
    package func requestReleaseForOthers() throws(SpoolError) {
        let receiving = locks.receiving()
        guard !receiving.isEmpty else { return }
        let isAnyRequested = try onDisk { () throws(SystemError) in
            guard let format = try openFormat() else { return false }
            return try format.descriptor.isMarkedElsewhere(subject: format.subject)
        }
        guard isAnyRequested else { return }
        for id in receiving where (try? isReleaseRequested(id)) == true {
            locks.requestRelease(of: id)
        }
    }

    /// Requests the release of every upload that a request of this process receives: its client can
    /// resume.
    package func requestReleaseOfAll() {
        for id in locks.receiving() { locks.requestRelease(of: id) }
    }

    private func isReleaseRequested(_ id: UploadID) throws(SystemError) -> Bool {
        guard let record = try layout.openRecord(FileName(id), forWriting: false) else {
            return false
        }
        return try record.descriptor.isMarkedElsewhere(subject: record.subject)
    }

    /// Runs `wait` while the release of the upload with that record is requested.
    func whileRequestingRelease<R>(
        of record: OpenFile,
        _ wait: () throws(SpoolError) -> R
    ) throws(SpoolError) -> R {
        let format = try onDisk { () throws(SystemError) in
            let format = try openFormat()
            try record.descriptor.setMark(true, subject: record.subject)
            try format?.descriptor.setMark(true, subject: "format")
            return format
        }
        defer {
            // The file stays open if the lock was won, and its own release is not requested.
            try? record.descriptor.setMark(false, subject: record.subject)
            withExtendedLifetime(format) {}
        }
        return try wait()
    }

    private func openFormat() throws(SystemError) -> OpenFile? {
        try OpenFile.open("format", in: layout.root, forWriting: false)
    }
}
