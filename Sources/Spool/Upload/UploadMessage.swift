// What a message brings beside content that counts: content that must be verified first, and the fields
// of the request that completes the upload.
//
// Invariant: content that was not verified is never promised and never outlives its holder; kept fields
// are replaced only by others that are whole.

package import HTTPTypes
import Posix
import UploadProtocol

extension Upload {
    // MARK: Content that must be verified

    /// What is appended from here on counts only after `verify()`: the death of the process, or
    /// letting go, takes it back, and `sync()` makes nothing of it durable that may be told.
    package func beginUnverified() throws(SpoolError) {
        _ = try requireData(while: queue == .incoming)
        try write { $0.verified = state.offset }
    }

    /// What was appended since `beginUnverified()` counts.
    ///
    /// Survives the death of the process on return.
    package func verify() throws(SpoolError) {
        _ = try requireData(while: queue == .incoming)
        guard recordState.verified != nil else { return }
        try write { $0.verified = nil }
    }

    /// Takes back what was appended since `beginUnverified()`; nothing where there is nothing.
    ///
    /// - Throws: `.disk` where the disk does not let it; the next who attaches does it then.
    package func discardUnverified() throws(SpoolError) {
        guard let verified = recordState.verified else { return }
        let data = try requireData(while: queue == .incoming)
        try spool.onDisk { () throws(SystemError) in try disk.truncate(data, to: verified) }
        spool.room.giveBack(state.offset - verified)
        state.offset = verified
        try write { $0.verified = nil }
    }

    // MARK: The completing request

    /// Keeps fields of the request that completed the upload, for attempts after it.
    ///
    /// Survives the death of the process on return, a power cut after the next `sync()`; until then
    /// the fields kept before are. The record is readable by its owner only.
    package func keepCompletion(_ fields: HTTPFields) throws(SpoolError) {
        // Also behind an attempt that got no answer; where one got its answer, that stands there.
        _ = try requireData(while: [.incoming, .active, .deferred].contains(queue))
        let bytes = fields.completionText
        let start: Int64
        if let before = recordState.completion {
            guard try bytes != self.bytes(of: before) else { return }
            // Never over those that count until the state says otherwise. Whatever lengths follow each
            // other, there is room before them again as soon as they lie behind the longest.
            let fits = before.lowerBound - creationEnd >= Int64(bytes.count)
            start = fits ? creationEnd : before.upperBound
        } else {
            start = creationEnd
        }
        try spool.onDisk { () throws(SystemError) in
            try disk.write(bytes, to: try openRecord(), at: start)
        }
        // A power cut must not keep a state that points to what it did not keep.
        if recordState.completion != nil, recordState.durable != nil { try syncRecord() }
        try write { $0.completion = start..<start + Int64(bytes.count) }
    }

    /// What `keepCompletion` kept; nil where nothing was, or a crash has damaged it.
    package func completion() throws(SpoolError) -> HTTPFields? {
        guard !isUnlocked, let extent = recordState.completion,
            let bytes = try bytes(of: extent)
        else { return nil }
        return HTTPFields(completionText: bytes)
    }

    /// A part of the record; nil where the file ends before it does.
    private func bytes(of extent: Range<Int64>) throws(SpoolError) -> [UInt8]? {
        try spool.onDisk { () throws(SystemError) in
            let record = try openRecord()
            guard extent.upperBound <= (try record.status().size) else { return nil }
            return try record.bytes(at: extent.lowerBound, count: extent.count)
        }
    }
}
