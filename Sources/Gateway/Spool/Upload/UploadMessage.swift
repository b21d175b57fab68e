// Content that must be verified before it counts, and the fields of the request that completes the upload.
//
// Invariant: unverified content is never acknowledged, and the next lock discards it; stored fields are replaced only
// by fields that are completely written.

package import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol

extension Upload {
    // MARK: Content that must be verified

    /// Starts content that counts only after `verify()`.
    ///
    /// A crash or unlocking discards it, and `sync()` does not include it in the durable offset.
    package func beginUnverified() throws(SpoolError) {
        try require(queue == .incoming)
        try record.write { $0.verified = content.size }
    }

    /// Makes the content appended since `beginUnverified()` count.
    ///
    /// Survives a crash on return, as far as `append(_:)` guarantees.
    package func verify() throws(SpoolError) {
        try require(queue == .incoming)
        guard record.state.verified != nil else { return }
        try record.write { $0.verified = nil }
    }

    /// Discards the content appended since `beginUnverified()`, if there is any.
    ///
    /// - Throws: `.disk` if that failed; the next lock does it then.
    package func discardUnverified() throws(SpoolError) {
        guard let verified = record.state.verified else { return }
        try require(queue == .incoming)
        try content.truncate(to: verified)
        try record.write { $0.verified = nil }
    }

    // MARK: The completing request

    /// Stores fields of the request that completed the upload, for later attempts.
    ///
    /// They survive a crash on return, and a power failure after the next `sync()`; until then, the fields stored
    /// before do. The record is readable only by its owner.
    package func keepCompletion(_ fields: HTTPFields) throws(SpoolError) {
        // Also after an attempt without a response; a stored response would be in the same place.
        try require([.incoming, .active, .deferred].contains(queue))
        let bytes = fields.completionText(of: id)
        let before = record.state.completion
        if let before, try bytes == record.bytes(of: before) { return }
        let extent = try record.writePart(bytes, beside: before, isReplacement: true)
        // A power failure must not keep a state that points to lost fields.
        if before != nil, isPromised { try record.sync() }
        try record.write { $0.completion = extent }
    }

    /// Returns the fields stored by `keepCompletion`; nil if there are none or a crash has damaged them.
    package func completion() throws(SpoolError) -> HTTPFields? {
        try isUnlocked ? nil : record.completion()
    }
}
