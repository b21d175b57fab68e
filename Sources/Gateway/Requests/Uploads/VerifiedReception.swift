// The content of a message with `Content-Digest` or `Upload-Checksum`, which counts completely or not at all (RFC 9530
// §2, draft-11 §9; tus, "checksum").
//
// Invariant: content that is not verified is never acknowledged, never delivered, and does not outlive its request.

import SpoolgateDelivery
import SpoolgateSpool
import SpoolgateUploadProtocol

/// The digests that a message states for its content, and the computation of the actual digests.
struct ContentCheck {
    let told: DigestValues
    let reading: DigestReading
}

extension UploadOperation {
    /// Begins to verify a message's content, which counts only after `endCheck` has succeeded.
    ///
    /// - Returns: nil if the message states no digest.
    func beginCheck() throws(SpoolError) -> ContentCheck? {
        // `try?`: a field that cannot be verified was refused earlier. A complete upload receives no more content.
        guard upload.state.phase == .receiving, let told = try? toldOfContent, !told.isEmpty
        else { return nil }
        try upload.beginUnverified()
        return ContentCheck(told: told, reading: DigestReading(told.algorithms))
    }

    private var toldOfContent: DigestValues {
        get throws(Refusal) {
            switch dialect.family {
            case .ietf: try DigestValues(.contentDigest, in: head.fields)
            case .tus: try DigestValues(checksumIn: head.fields)
            }
        }
    }

    /// Ends the verification, and discards content that is not verified; returns false if a refusal was sent.
    func endCheck(
        _ check: ContentCheck,
        _ end: ReceptionEnd
    ) throws(SpoolError) -> Bool {
        // A checksum in tus describes a chunk; it does not apply to a message without content.
        let isOfNothing = dialect.family == .tus && upload.durableOffset == offset
        guard end == .ended, !isOfNothing else {
            try upload.discardUnverified()
            return true
        }
        guard !check.told.agrees(with: check.reading.finish()) else {
            try upload.verify()
            return true
        }
        try upload.discardUnverified()
        let mismatch: Refusal =
            dialect.family == .tus ? .checksumMismatch : .contentDigestMismatch
        if isCreation, !request.isLocationTold {
            // The client does not know the location and cannot resume.
            try upload.remove()
            refuse(mismatch)
        } else {
            try refuseDurably(mismatch)
        }
        return false
    }
}
