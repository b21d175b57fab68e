// The content of one message that its `Content-Digest` or `Upload-Checksum` describes: all of it counts, or
// none (RFC 9530 §2, draft-11 §9; tus, "checksum").
//
// Invariant: what is not verified is never told, never delivered and does not survive its request.

import SpoolgateDelivery
import SpoolgateSpool
import SpoolgateUploadProtocol

/// What the content of one message has to be, and what came of it.
struct ContentCheck {
    let told: DigestValues
    let reading: DigestReading
}

extension UploadOperation {
    /// Makes what the message brings count only once it is verified.
    ///
    /// - Returns: the check that its content has to pass; nil if the message tells no digest.
    func beginCheck() throws(SpoolError) -> ContentCheck? {
        // `try?`: a field that cannot be verified was refused before. An upload that is whole takes no
        // content any more.
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

    /// Ends the check of a message's content, whichever way that ended; what is not right is taken back.
    ///
    /// - Returns: whether the request goes on; false where it was answered here.
    func endCheck(
        _ check: ContentCheck,
        _ end: ReceptionEnd
    ) throws(SpoolError) -> Bool {
        // What clients of tus say of a chunk says nothing of none.
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
            // Its client was never told where it is: nobody comes back.
            try upload.remove()
            refuse(mismatch)
        } else {
            try refuseDurably(mismatch)
        }
        return false
    }
}
