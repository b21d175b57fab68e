// The verification of a complete upload's digests before its request is built.
//
// Invariant: no request is built for an upload that contradicts a client's digest.

package import HTTPTypes
import SpoolgateJournal
import SpoolgatePosix
package import SpoolgateSpool
package import SpoolgateUploadProtocol
import SpoolgateUpstream

extension Delivery {
    /// Computes the digests needed for a complete upload.
    ///
    /// Reads nothing if none is needed. `told` contains the algorithms of the digests for the upstream.
    ///
    /// - Returns: the digests, or a refusal if they contradict the client's. In that case, the upload has been removed,
    ///   or moved to `hold` if `client` cannot receive the refusal.
    func checkDigests(
        of upload: Upload,
        for client: ClientKnowledge,
        completing: HTTPFields?,
        told: Set<DigestAlgorithm>,
        _ heartbeat: Heartbeat?
    ) throws(SpoolError) -> Result<UploadDigests, Refusal> {
        let plan = DigestPlan(
            creation: upload.creation.head.fields,
            completing: completing,
            told: told
        )
        let values = try DigestReading.values(
            plan.algorithms,
            length: upload.offset,
            read: { buffer, position throws(SpoolError) in
                try upload.read(into: buffer, at: position)
            },
            // If a heartbeat fails, the content may be truncated, and reading it ends early.
            onProgress: { heartbeat?.beat(upload, failingInto: journal) }
        )
        guard let values else {
            let subject = "the content of \(upload.creation.id)"
            throw .disk(SystemError(call: "pread", subject: subject, errno: SystemError.lost))
        }
        let checked = plan.checked(values)
        if case .failure(let refusal) = checked {
            if AttemptFate(after: .contradicted, isRepeatable: true, client).removesContent {
                try upload.remove(durably: true)
                journal.deactivated(upload, refusal)
            } else {
                try fail(upload, reason: "the content contradicts the client's digest")
            }
        }
        return checked
    }

    /// Verifies a complete upload's digests, and removes the upload if they contradict the client's.
    ///
    /// Reads nothing if the client has already received 202 for the upload.
    ///
    /// `completing` contains the fields of the request that completed the upload. `heartbeat` sends heartbeats to the
    /// client while the content is read.
    ///
    /// - Returns: the refusal to send; nil if the digests agree, or none needs verification.
    /// - Throws: `SpoolError` if the upload cannot be read or removed.
    package func contradiction(
        of upload: Upload,
        completing: HTTPFields,
        _ heartbeat: Heartbeat?
    ) throws(SpoolError) -> Refusal? {
        guard upload.state.phase == .receiving else { return nil }
        let checked = try checkDigests(
            of: upload,
            for: .resource,
            completing: completing,
            told: [],
            heartbeat
        )
        guard case .failure(let refusal) = checked else { return nil }
        return refusal
    }
}

extension FormFailure {
    /// The refusal to send if this form cannot be built; `isKept` is true if the upload is kept for a retry.
    package func refusal(isKept: Bool) -> Refusal {
        isFull ? .destinationFull(isKept: isKept) : .notReached(timedOut: false, isKept: isKept)
    }
}
