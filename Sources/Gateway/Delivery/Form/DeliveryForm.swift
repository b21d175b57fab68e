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
    /// Computes the requested digests of a complete upload; if none is requested, nothing is read.
    ///
    /// - Parameters:
    ///   - upload: the upload.
    ///   - completing: the fields of the request that completes it; nil if none does.
    ///   - told: the digests sent to the upstream.
    ///   - heartbeat: sends heartbeats to the client between two parts.
    /// - Returns: the digests, or the refusal if they contradict the client's; the upload is then removed.
    /// - Throws: `SpoolError` if the upload cannot be read or removed.
    func checkDigests(
        of upload: Upload,
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
            onProgress: { heartbeat?.beat(upload, failingInto: journal.log) }
        )
        guard let values else {
            let subject = "the content of \(upload.creation.id)"
            throw .disk(SystemError(call: "pread", subject: subject, errno: SystemError.lost))
        }
        let checked = plan.checked(values)
        if case .failure(let refusal) = checked {
            try upload.remove(durably: true)
            journal.deactivated(upload, refusal)
        }
        return checked
    }

    /// The refusal of a complete upload that contradicts the client's digests; the upload is then removed.
    ///
    /// Nothing is read of an upload that was accepted before.
    ///
    /// - Parameters:
    ///   - upload: the upload.
    ///   - completing: the fields of the request that completes it.
    ///   - heartbeat: sends heartbeats to the client between two parts.
    /// - Returns: nil if the digests agree.
    /// - Throws: `SpoolError` if the upload cannot be read or removed.
    package func contradiction(
        of upload: Upload,
        completing: HTTPFields,
        _ heartbeat: Heartbeat?
    ) throws(SpoolError) -> Refusal? {
        guard upload.state.phase == .receiving else { return nil }
        let checked = try checkDigests(of: upload, completing: completing, told: [], heartbeat)
        guard case .failure(let refusal) = checked else { return nil }
        return refusal
    }
}

extension FormFailure {
    /// The refusal that the client receives; `isKept`: whether its upload is kept.
    package func refusal(isKept: Bool) -> Refusal {
        isFull ? .destinationFull(isKept: isKept) : .notReached(timedOut: false, isKept: isKept)
    }
}
