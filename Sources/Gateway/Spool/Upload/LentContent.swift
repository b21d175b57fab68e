// Content that somebody else adds to an upload's file: the web server, on the lane.
//
// Invariant: whoever dies, nobody else touches the file before the other has closed it.

import SpoolgatePosix
import SpoolgateUploadProtocol

extension ContentFile {
    /// Bytes that somebody else may add in all; nil: nobody has the file.
    package var lent: Int64? { loan?.taken }

    /// Bytes of a loan that were not reported as added.
    func left(of loan: Loan) -> Int64 { loan.start + loan.taken - size }

    /// Opens the content's file for somebody else who adds content to its end.
    ///
    /// The lock of that opening stands for the content from now on: whoever dies, nobody else touches it before
    /// the other is done. Nothing may be appended here until `takeBack`.
    ///
    /// - Parameter count: the most bytes that may be added; `lent` says how many, at least one.
    /// - Returns: the file.
    /// - Throws: where there is no room at all; nothing is lent then.
    func lend(upTo count: Int64) throws(SpoolError) -> Descriptor {
        try writableData()
        let taken = try spool.room.lend(upTo: count)
        do throws(SpoolError) {
            let lent = try openForLending()
            loan = Loan(start: size, taken: taken)
            return lent
        } catch {
            spool.room.endLoan(of: taken, written: 0)
            throw error
        }
    }

    private func openForLending() throws(SpoolError) -> Descriptor {
        do throws(SystemError) {
            if let lent = try directory.openForAppending(name.data),
                let kept = try OpenFile.open(name.data, in: directory, forWriting: false)
            {
                // The record's lock keeps others away between the two.
                data = kept
                if try lent.tryLock(subject: kept.subject) { return lent }
            }
        } catch {
            throw spool.failure(error)
        }
        throw .contradiction(id, reason: "another process has locked its content")
    }

    /// Lets up to `count` bytes more be added, at least one.
    ///
    /// - Throws: as `Upload.lend`; then the bound is what it was.
    package func lendMore(upTo count: Int64) throws(SpoolError) {
        guard loan != nil else {
            throw .contradiction(id, reason: "its content is not lent to nginx")
        }
        loan?.taken += try spool.room.lend(upTo: count)
    }

    /// Notes that so many bytes were added in all, which survive the death of any process.
    ///
    /// No more count than may be, and than there are.
    package func noteAdded(_ count: Int64) throws(SpoolError) {
        guard let loan, let data else { return }
        let found = try spool.onDisk { () throws(SystemError) in try data.status().size }
        let before = size
        try checkNotCut(found)
        size = max(size, min(loan.start + min(count, loan.taken), found))
        spool.room.endLoan(of: size - before, written: size - before)
        record.lastActivity = spool.clock.now
        writeBack(data)
    }

    /// Refuses content that somebody has shortened while it was lent: what a client was told of it is gone.
    private func checkNotCut(_ found: Int64) throws(SpoolError) {
        guard found >= size else {
            throw .disk(SystemError(call: "fstat", subject: path, errno: SystemError.lost))
        }
    }

    /// Whether bytes were added of which nothing was noted.
    package var hasGrown: Bool {
        guard loan != nil, let found = try? data?.status().size else { return false }
        return found > size
    }

    /// Takes the content back once nobody else can add to it any more.
    ///
    /// - Parameters:
    ///   - count: bytes that were added in all; nil: as many as there are.
    ///   - deadline: until when the other is waited for.
    /// - Returns: false where it is not done by then.
    /// - Throws: `.disk`.
    func takeBack(_ count: Int64?, until deadline: Deadline) throws(SpoolError) -> Bool {
        guard let loan else { return true }
        let data = try spool.onDisk { () throws(SystemError) in try layout.openData(name) }
        guard let data else { throw .contradiction(id, reason: "its data file is missing") }
        while try !spool.onDisk({ () throws(SystemError) in try data.tryLock() }) {
            // The kernel tells nobody when a lock comes free.
            guard !deadline.hasPassed else { return false }
            Thread.pause(.milliseconds(2))
        }
        self.data = data
        let found = try spool.onDisk { () throws(SystemError) in try data.status().size }
        try checkNotCut(found)
        let most = loan.start + min(count ?? loan.taken, loan.taken)
        let (before, lent) = (size, left(of: loan))
        size = min(found, most)
        self.loan = nil
        spool.room.endLoan(of: lent, written: size - before)
        record.lastActivity = spool.clock.now
        if found > size {
            try spool.onDisk { () throws(SystemError) in try disk.truncate(data, to: size) }
        }
        return true
    }
}
