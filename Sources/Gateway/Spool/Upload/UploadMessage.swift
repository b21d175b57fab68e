// Content that must be verified before it counts, and the fields of the completing request.
//
// Invariant: unverified content is never acknowledged, and the next lock discards it; stored fields are replaced only
// by completely written ones.

package import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol

extension Upload {
    // MARK: Content that must be verified

    /// Marks content appended from now on as unverified, until `verify()`.
    ///
    /// A crash or `unlock()` discards it, and `sync()` does not include it in the durable offset.
    package func beginUnverified() throws(SpoolError) {
        try require(queue == .incoming)
        try record.write { $0.verified = content.size }
    }

    /// Marks the content appended since `beginUnverified()` as verified.
    ///
    /// On return, this survives a crash as far as the content does, see `append(_:)`.
    package func verify() throws(SpoolError) {
        try require(queue == .incoming)
        guard record.state.verified != nil else { return }
        try record.write { $0.verified = nil }
    }

    /// Discards the content appended since `beginUnverified()`, if there is any.
    ///
    /// - Throws: `.disk` if that failed; the content is then discarded when the upload is next locked.
    package func discardUnverified() throws(SpoolError) {
        guard let verified = record.state.verified else { return }
        try require(queue == .incoming)
        try content.truncate(to: verified)
        try record.write { $0.verified = nil }
    }

    // MARK: The completing request

    /// Stores fields of the completing request for later attempts.
    ///
    /// On return, they survive a crash; they survive a power failure only after the next `sync()`, until which the
    /// fields stored before are kept. Only the user that owns the spool can read them.
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

    /// Returns the stored fields of the completing request.
    ///
    /// They are nil if they are missing or were damaged by a crash, and after the upload was unlocked.
    package func completion() throws(SpoolError) -> HTTPFields? {
        try isUnlocked ? nil : record.completion()
    }
}
