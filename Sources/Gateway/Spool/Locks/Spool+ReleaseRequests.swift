// Requests from one process to another to release a locked upload, made with kernel locks alone.
//
// A waiting request marks the record, and the file `format`, so that daemons check single uploads only while a request
// is waiting. Invariant: a mark lasts no longer than the wait, because closing the file removes it.

import SpoolgatePosix
import SpoolgateUploadProtocol

extension Spool {
    /// Makes this process release the uploads that requests in other processes are waiting for.
    ///
    /// Call this several times a second. This makes at most three system calls while no other process is waiting. An
    /// upload that is being delivered is not affected; the other process waits until the delivery ends.
    ///
    /// - Throws: `.disk` if the file `format` cannot be read.
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

    /// Requests the release of every upload that this process is receiving; the clients can resume their uploads.
    package func requestReleaseOfAll() {
        for id in locks.receiving() { locks.requestRelease(of: id) }
    }

    private func isReleaseRequested(_ id: UploadID) throws(SystemError) -> Bool {
        guard let record = try layout.openRecord(FileName(id), forWriting: false) else {
            return false
        }
        return try record.descriptor.isMarkedElsewhere(subject: record.subject)
    }

    /// Runs `wait` and meanwhile asks other processes to release the upload.
    func whileRequestingRelease<R>(
        of record: OpenFile,
        _ wait: () throws(SpoolError) -> R
    ) throws(SpoolError) -> R {
        let format = try onDisk { () throws(SystemError) in
            let format = try openFormat()
            try record.descriptor.setMark(to: true, subject: record.subject)
            try format?.descriptor.setMark(to: true, subject: "format")
            return format
        }
        defer {
            // If `wait` has locked the record, the record stays open, and a remaining mark would request the release of
            // this lock.
            try? record.descriptor.setMark(to: false, subject: record.subject)
            withExtendedLifetime(format) {}
        }
        return try wait()
    }

    private func openFormat() throws(SystemError) -> OpenFile? {
        try OpenFile.open("format", in: layout.root, forWriting: false)
    }
}
