// What happens to a whole upload before its one request goes out: its digests, then its form.
//
// Neither is a delivery attempt yet. Invariant: an upload that a client's digest contradicts never gets a
// form.

package import HTTPTypes
import Journal
import Posix
import Settings
package import Spool
package import UploadProtocol
import Upstream

/// The digests of one upload, computed, and whom they are for.
package struct UploadDigests {
    /// What they are for.
    package var plan: DigestPlan
    /// One for each of `plan.algorithms`.
    package var values: DigestValues

    /// The values of a plan; none of no plan.
    package init(plan: DigestPlan = DigestPlan(), values: DigestValues = DigestValues()) {
        self.plan = plan
        self.values = values
    }
}

extension Delivery {
    /// Computes the digests of a whole upload that somebody asked for; without any, nothing is read.
    ///
    /// - Parameters:
    ///   - upload: the upload.
    ///   - completing: the fields of the request that completes it; nil if none does.
    ///   - told: the digests that the upstream is told.
    ///   - onProgress: called between two parts.
    /// - Returns: the digests, or why the upload is not to be delivered: then it is removed.
    /// - Throws: `SpoolError` where it cannot be read or removed.
    func checkDigests(
        of upload: Upload,
        completing: HTTPFields?,
        told: Set<DigestAlgorithm>,
        _ onProgress: () -> Void
    ) throws(SpoolError) -> Result<UploadDigests, Refusal> {
        let plan = DigestPlan(
            creation: upload.creation.head.fields,
            completing: completing,
            told: told
        )
        let values = try DigestReading.values(
            plan.algorithms,
            length: upload.state.offset,
            read: { buffer, position throws(SpoolError) in
                try upload.read(into: buffer, at: position)
            },
            onProgress: onProgress
        )
        guard let values else {
            let subject = "the content of \(upload.creation.id)"
            throw .disk(SystemError(call: "pread", subject: subject, errno: SystemError.lost))
        }
        if let refusal = plan.refusal(values) {
            try upload.remove(durably: true)
            journal.deactivated(upload, refusal)
            return .failure(refusal)
        }
        return .success(UploadDigests(plan: plan, values: values))
    }

    /// What of a whole upload contradicts the digests that clients told of it: then it is removed.
    ///
    /// Of an upload that was accepted before nothing is read.
    ///
    /// - Parameters:
    ///   - upload: the upload.
    ///   - completing: the fields of the request that completes it.
    ///   - onProgress: called between two parts.
    /// - Returns: nil where nothing does.
    /// - Throws: `SpoolError` where it cannot be read or removed.
    package func contradiction(
        of upload: Upload,
        completing: HTTPFields,
        _ onProgress: () -> Void
    ) throws(SpoolError) -> Refusal? {
        guard upload.state.phase == .receiving else { return nil }
        let checked = try checkDigests(of: upload, completing: completing, told: [], onProgress)
        guard case .failure(let refusal) = checked else { return nil }
        return refusal
    }

    /// Makes the one request of a whole upload from its creation.
    ///
    /// - Parameters:
    ///   - upload: the upload.
    ///   - completing: the fields of the request that completes it; nil if none does.
    ///   - relay: has the upload's digests, and hears that a copy goes on.
    /// - Returns: the request in its form.
    /// - Throws: `FormFailure`; nothing was sent then.
    func form(
        of upload: Upload,
        completing: HTTPFields?,
        _ relay: FinalResponseRelay
    ) throws(FormFailure) -> UploadForm {
        let length = upload.state.offset
        return try UploadForm(
            upload.creation,
            .file(descriptor: upload.dataFile, length: length) { buffer, position in
                try upload.read(into: buffer, at: position)
            },
            length: length,
            route: route.settings,
            completing: completing,
            digests: relay.digests,
            time: deliveries.clock.now,
            onProgress: relay.onProgress
        )
    }
}

extension FormFailure {
    /// What the client of an upload hears; `isKept` whether its bytes are.
    package func refusal(isKept: Bool) -> Refusal {
        isFull ? .destinationFull(isKept: isKept) : .notReached(timedOut: false, isKept: isKept)
    }
}
