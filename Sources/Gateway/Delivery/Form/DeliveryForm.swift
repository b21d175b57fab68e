// What happens to a whole upload before it gets a form: its digests are computed and compared.
//
// Invariant: an upload that a client's digest contradicts never gets a form.

package import HTTPTypes
import SpoolgateJournal
import SpoolgatePosix
package import SpoolgateSpool
package import SpoolgateUploadProtocol
import SpoolgateUpstream

extension Delivery {
    /// Computes the digests of a whole upload that somebody asked for; without any, nothing is read.
    ///
    /// - Parameters:
    ///   - upload: the upload.
    ///   - completing: the fields of the request that completes it; nil if none does.
    ///   - told: the digests that the upstream is told.
    ///   - heartbeat: tells the client between two parts that the wait goes on.
    /// - Returns: the digests, or why the upload is not to be delivered: then it is removed.
    /// - Throws: `SpoolError` where it cannot be read or removed.
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
            // Where it fails, content that was cut back ends early for whoever reads it.
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

    /// What of a whole upload contradicts the digests that clients told of it: then it is removed.
    ///
    /// Of an upload that was accepted before nothing is read.
    ///
    /// - Parameters:
    ///   - upload: the upload.
    ///   - completing: the fields of the request that completes it.
    ///   - heartbeat: tells the client between two parts that the wait goes on.
    /// - Returns: nil where nothing does.
    /// - Throws: `SpoolError` where it cannot be read or removed.
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
    /// What the client of an upload hears; `isKept` whether its bytes are.
    package func refusal(isKept: Bool) -> Refusal {
        isFull ? .destinationFull(isKept: isKept) : .notReached(timedOut: false, isKept: isKept)
    }
}
