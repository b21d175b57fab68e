// Content that must be verified before it counts, and the fields of the completing request.
//
// Invariant: unverified content is never acknowledged, and the next lock discards it; stored fields are replaced only
// by completely written ones.

package import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol

extension HTTPField.Name {
    /// Lists the digests of the client's credentials that were refused; stored with the completing request's fields.
    ///
    /// No client can send such a field. Version 0.1.0 ignores it.
    package static let refusedCredentials = made("spoolgate-refused")
}

extension Upload {
    // MARK: Content that must be verified

    /// Marks content appended from now on as unverified, until `verify()`.
    ///
    /// A crash or `unlock()` discards unverified content, and `sync()` excludes it from the durable offset.
    package func beginUnverified() throws(SpoolError) {
        try require(queue == .incoming)
        try record.write { $0.verified = content.size }
    }

    /// Marks the content appended since `beginUnverified()` as verified.
    ///
    /// On return, the mark survives a crash if the content does (see `append(_:)`).
    package func verify() throws(SpoolError) {
        try require(queue == .incoming)
        guard record.state.verified != nil else { return }
        try record.write { $0.verified = nil }
    }

    /// Discards the content appended since `beginUnverified()`.
    ///
    /// - Throws: `.disk` if that failed; the next lock then discards the content.
    package func discardUnverified() throws(SpoolError) {
        guard let verified = record.state.verified else { return }
        try require(queue == .incoming)
        try content.truncate(to: verified)
        try record.write { $0.verified = nil }
    }

    // MARK: The completing request

    /// Stores fields of the completing request for later attempts.
    ///
    /// On return, the fields survive a crash. They survive a power failure only after the next `sync()`; until then,
    /// the previously stored fields are kept. Only the user that owns the spool can read them.
    package func keepCompletion(_ fields: HTTPFields) throws(SpoolError) {
        // Also allowed after an attempt without a response. A stored response would be in the same place.
        try require([.incoming, .active, .deferred].contains(queue))
        let bytes = fields.completionText(of: id)
        let before = record.state.completion
        if let before, try bytes == record.bytes(of: before) { return }
        let extent = try record.writePart(bytes, beside: before, isReplacement: true)
        // A power failure must not keep a state that points to lost fields.
        if before != nil, isPromised { try record.sync() }
        try record.write { $0.completion = extent }
    }

    /// Forgets which credentials were refused, because an operator has decided to send them again.
    func forgetRefusals() throws(SpoolError) {
        guard var fields = try completion(), fields.contains(.refusedCredentials) else { return }
        fields[.refusedCredentials] = nil
        try keepCompletion(fields)
        try sync()
    }

    /// Returns the stored fields of the completing request, and `refusedCredentials`.
    ///
    /// Returns nil if the fields are missing or damaged, or after the upload was unlocked.
    package func completion() throws(SpoolError) -> HTTPFields? {
        try isUnlocked ? nil : record.completion()
    }
}
