// What a message brings beside content that counts: content that must be verified first, and the fields
// of the request that completes the upload.
//
// Invariant: content that was not verified is never promised and never outlives its lock; kept fields
// are replaced only by others that are whole.

package import HTTPTypes
import Posix
import UploadProtocol

extension Upload {
    // MARK: Content that must be verified

    /// What is appended from here on counts only after `verify()`: the death of the process, or
    /// unlocking, takes it back, and `sync()` makes nothing of it durable that may be told.
    package func beginUnverified() throws(SpoolError) {
        try requireData(while: queue == .incoming)
        try files.write { $0.verified = files.size }
    }

    /// What was appended since `beginUnverified()` counts.
    ///
    /// Survives the death of the process on return.
    package func verify() throws(SpoolError) {
        try requireData(while: queue == .incoming)
        guard files.state.verified != nil else { return }
        try files.write { $0.verified = nil }
    }

    /// Takes back what was appended since `beginUnverified()`; nothing where there is nothing.
    ///
    /// - Throws: `.disk` where the disk does not let it; the next lock does it then.
    package func discardUnverified() throws(SpoolError) {
        guard let verified = files.state.verified else { return }
        try requireData(while: queue == .incoming)
        try files.cutBack(to: verified)
    }

    // MARK: The completing request

    /// Keeps fields of the request that completed the upload, for attempts after it.
    ///
    /// Survives the death of the process on return, a power cut after the next `sync()`; until then
    /// the fields kept before are. The record is readable by its owner only.
    package func keepCompletion(_ fields: HTTPFields) throws(SpoolError) {
        // Also behind an attempt that got no answer; where one got its answer, that stands there.
        try requireData(while: [.incoming, .active, .deferred].contains(queue))
        let bytes = fields.completionText
        let start: Int64
        if let before = files.state.completion {
            guard try bytes != files.bytes(of: before) else { return }
            // Never over those that count until the state says otherwise. Whatever lengths follow each
            // other, there is room before them again as soon as they lie behind the longest.
            let fits = before.lowerBound - files.creationEnd >= Int64(bytes.count)
            start = fits ? files.creationEnd : before.upperBound
        } else {
            start = files.creationEnd
        }
        try files.write(bytes, at: start)
        // A power cut must not keep a state that points to what it did not keep.
        if files.state.completion != nil, isPromised { try files.syncRecord() }
        try files.write { $0.completion = start..<start + Int64(bytes.count) }
    }

    /// What `keepCompletion` kept; nil where nothing was, or a crash has damaged it.
    package func completion() throws(SpoolError) -> HTTPFields? {
        guard !isUnlocked, let extent = files.state.completion,
            let bytes = try files.bytes(of: extent)
        else { return nil }
        return HTTPFields(completionText: bytes)
    }
}
