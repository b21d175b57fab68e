// What happens to a whole upload before its one request goes out: its digests, then its form.
//
// Neither is a delivery attempt yet. Invariant: an upload that a client's digest contradicts never gets a
// form.

import HTTPTypes
import Posix
import Spool
import UploadProtocol
import Upstream

/// The digests of one upload, computed, and whom they are for.
struct UploadDigests {
    /// What they are for.
    var duty = DigestDuty()
    /// One for each of `duty.algorithms`.
    var values = DigestValues()
}

extension Delivery {
    /// Computes the digests of a whole upload that somebody asked for; without any, nothing is read.
    ///
    /// - Parameters:
    ///   - upload: the upload.
    ///   - completing: the fields of the request that completes it; nil if none does.
    ///   - goesOn: called between two parts.
    /// - Returns: the digests, or why the upload is not to be delivered: then it is removed.
    /// - Throws: `SpoolError` where it cannot be read or removed.
    func checkDigests(
        of upload: Upload,
        completing: HTTPFields?,
        _ goesOn: () -> Void
    ) throws(SpoolError) -> Result<UploadDigests, Refusal> {
        let duty = DigestDuty(
            creation: upload.creation.head.fields,
            completing: completing,
            route: route.settings
        )
        let values = try compute(duty.algorithms, of: upload, goesOn)
        if let refusal = duty.refusal(values) {
            try upload.remove(durably: true)
            gateway.events.note(Event(.failed, of: upload, reason: refusal.title))
            log.deactivated(upload.creation.id, reason: refusal.title)
            return .failure(refusal)
        }
        return .success(UploadDigests(duty: duty, values: values))
    }

    /// What of a whole upload contradicts the digests that clients told of it: then it is removed.
    ///
    /// Of an upload that was accepted before nothing is read.
    ///
    /// - Parameters:
    ///   - upload: the upload.
    ///   - completing: the fields of the request that completes it.
    ///   - goesOn: called between two parts.
    /// - Returns: nil where nothing does.
    /// - Throws: `SpoolError` where it cannot be read or removed.
    func contradiction(
        of upload: Upload,
        completing: HTTPFields,
        _ goesOn: () -> Void
    ) throws(SpoolError) -> Refusal? {
        guard upload.state.phase == .receiving else { return nil }
        var asIs = self
        asIs.route = route.changed { route in
            route.digest = nil
            route.form = .body
        }
        switch try asIs.checkDigests(of: upload, completing: completing, goesOn) {
        case .success: return nil
        case .failure(let refusal): return refusal
        }
    }

    private func compute(
        _ algorithms: Set<DigestAlgorithm>,
        of upload: Upload,
        _ goesOn: () -> Void
    ) throws(SpoolError) -> DigestValues {
        let values = try DigestReading.values(
            algorithms,
            length: upload.state.offset,
            read: { buffer, position throws(SpoolError) in
                try upload.read(into: buffer, at: position)
            },
            goesOn: goesOn
        )
        if let values { return values }
        let subject = "the content of \(upload.creation.id)"
        throw .disk(SystemError(call: "pread", subject: subject, errno: SystemError.lost))
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
        _ relay: VerdictRelay
    ) throws(FormFailure) -> UploadForm {
        let creation = upload.creation
        return try UploadForm(
            WholeUpload(
                id: creation.id,
                creation: creation.head,
                completing: completing,
                owner: creation.principal,
                address: creation.remoteAddress,
                scheme: creation.scheme,
                idempotencyKey: route.honoursIdempotencyKey ? "\"\(creation.id)\"" : nil,
                length: upload.state.offset,
                digests: relay.digests.values
            ),
            .file(descriptor: upload.dataFile, length: upload.state.offset) { buffer, position in
                try upload.read(into: buffer, at: position)
            },
            route: route.settings,
            told: relay.digests.duty.told,
            time: gateway.clock.now,
            goesOn: relay.attemptGoesOn
        )
    }
}

extension FormFailure {
    /// What the client of an upload hears; `isKept` whether its bytes are.
    func refusal(isKept: Bool) -> Refusal {
        isFull ? .destinationFull(isKept: isKept) : .notReached(timedOut: false, isKept: isKept)
    }
}
