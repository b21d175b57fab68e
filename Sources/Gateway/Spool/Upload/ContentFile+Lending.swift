// Content that the web server appends to an upload's data file by the lane.
//
// Invariant: if a process ends, no other process uses the file before the remaining one has closed it.

import SpoolgatePosix
import SpoolgateUploadProtocol

extension ContentFile {
    /// The number of bytes that the web server may add during the loan; nil if the file is not lent.
    package var lent: Int64? { loan?.taken }

    /// Returns the number of bytes of `loan` that have not been reported as written.
    func left(of loan: Loan) -> Int64 { loan.start + loan.taken - size }

    /// Opens the data file for the web server, as `Upload.lend(upTo:)` does.
    ///
    /// From now on, the lock of the returned descriptor protects the content, even if this process ends. If an error is
    /// thrown, nothing is lent.
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
                // The record's lock excludes other processes until the file is locked again.
                data = kept
                if try lent.tryLock(subject: kept.subject) { return lent }
            }
        } catch {
            throw spool.failure(error)
        }
        throw .contradiction(id, reason: "another process has locked its content")
    }

    /// Allows the web server to add up to `count` more bytes, at least one.
    ///
    /// - Throws: `.full` or `.overQuota`; the limit is then unchanged.
    package func lendMore(upTo count: Int64) throws(SpoolError) {
        guard loan != nil else {
            throw .contradiction(id, reason: "its content is not lent to nginx")
        }
        loan?.taken += try spool.room.lend(upTo: count)
    }

    /// Records that the web server has added `count` bytes in total since `lend`.
    ///
    /// These bytes survive a crash. Ignores bytes over the limit and bytes that are not in the file.
    package func noteAdded(_ count: Int64) throws(SpoolError) {
        guard let loan, let data else { return }
        let found = try spool.reporting(data.status().size)
        let before = size
        try checkNotCut(found)
        size = max(size, min(loan.start + min(count, loan.taken), found))
        spool.room.endLoan(of: size - before, written: size - before)
        record.lastActivity = spool.clock.now
        writeBack(data)
    }

    /// Throws an error if the file was truncated during the loan, because acknowledged content may be lost.
    private func checkNotCut(_ found: Int64) throws(SpoolError) {
        guard found >= size else {
            throw .disk(SystemError(call: "fstat", subject: path, errno: SystemError.lost))
        }
    }

    /// Whether the web server has added bytes that `noteAdded(_:)` has not recorded.
    package var hasGrown: Bool {
        guard loan != nil, let found = try? data?.status().size else { return false }
        return found > size
    }

    /// Ends the loan after the web server has closed the file.
    ///
    /// - Parameters:
    ///   - count: the number of bytes that the web server has added in total, or nil to count all bytes in the file.
    ///   - deadline: when to stop waiting for the web server.
    /// - Returns: false if the web server still has the file open.
    /// - Throws: `.disk`; `.contradiction` if the data file is missing.
    func takeBack(_ count: Int64?, until deadline: Deadline) throws(SpoolError) -> Bool {
        guard let loan else { return true }
        let data = try spool.reporting(layout.openData(name))
        guard let data else { throw .contradiction(id, reason: "its data file is missing") }
        while try !spool.reporting(data.tryLock()) {
            // Poll, because the kernel does not report that a lock was released.
            guard !deadline.hasPassed else { return false }
            Thread.pause(.milliseconds(2))
        }
        self.data = data
        let found = try spool.reporting(data.status().size)
        try checkNotCut(found)
        let maximum = loan.start + min(count ?? loan.taken, loan.taken)
        let (before, lent) = (size, left(of: loan))
        size = min(found, maximum)
        self.loan = nil
        spool.room.endLoan(of: lent, written: size - before)
        record.lastActivity = spool.clock.now
        if found > size {
            try spool.reporting(disk.truncate(data, to: size))
        }
        return true
    }
}
