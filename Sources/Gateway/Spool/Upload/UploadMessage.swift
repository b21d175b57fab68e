// What a message brings beside content that counts: content that must be verified first, and the fields
// of the request that completes the upload.
//
// Invariant: content that was not verified is never promised and never outlives its lock; kept fields
// are replaced only by others that are whole.

package import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol

extension Upload {
    // MARK: Content that must be verified

    /// What is appended from here on counts only after `verify()`: the death of the process, or
    /// unlocking, takes it back, and `sync()` makes nothing of it durable that may be told.
    package func beginUnverified() throws(SpoolError) {
        try require(queue == .incoming)
        try record.write { $0.verified = content.size }
    }

    /// What was appended since `beginUnverified()` counts.
    ///
    /// Survives the death of the process on return, as far as `append(_:)` says.
    package func verify() throws(SpoolError) {
        try require(queue == .incoming)
        guard record.state.verified != nil else { return }
        try record.write { $0.verified = nil }
    }

    /// Takes back what was appended since `beginUnverified()`; nothing where there is nothing.
    ///
    /// - Throws: `.disk` where the disk does not let it; the next lock does it then.
    package func discardUnverified() throws(SpoolError) {
        guard let verified = record.state.verified else { return }
        try require(queue == .incoming)
        try content.truncate(to: verified)
        try record.write { $0.verified = nil }
    }

    // MARK: The completing request

    /// Keeps fields of the request that completed the upload, for attempts after it.
    ///
    /// Survives the death of the process on return, a power cut after the next `sync()`; until then
    /// the fields kept before are. The record is readable by its owner only.
    package func keepCompletion(_ fields: HTTPFields) throws(SpoolError) {
        // Also behind an attempt that got no answer; where one got its answer, that stands there.
        try require([.incoming, .active, .deferred].contains(queue))
        let bytes = fields.completionText(of: id)
        let before = record.state.completion
        if let before, try bytes == record.bytes(of: before) { return }
        let extent = try record.writePart(bytes, beside: before, isReplacement: true)
        // A power cut must not keep a state that points to what it did not keep.
        if before != nil, isPromised { try record.sync() }
        try record.write { $0.completion = extent }
    }

    /// What `keepCompletion` kept; nil where nothing was, or a crash has damaged it.
    package func completion() throws(SpoolError) -> HTTPFields? {
        try isUnlocked ? nil : record.completion()
    }
}
