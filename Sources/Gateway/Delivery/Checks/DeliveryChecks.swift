// The checks before the delivery of a complete upload: the inspection, then the authorizer.
//
// Invariant: no check runs while the upload is in `active`, so that after a crash the upload counts as never sent.

import HTTPTypes
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol
import SpoolgateUpstream

extension Delivery {
    enum Checked {
        case cleared
        /// The delivery must not continue. `deliver` must return the value.
        case ended(Refusal?)
    }

    private enum Clearance {
        case cleared
        case refused(Response, reason: String, message: String? = nil)
        /// The checks are repeated at the next attempt.
        case postponed(reason: String)
        /// The client may retry with other credentials.
        case lacksCredentials(Refusal, reason: String)
    }

    /// Runs the checks.
    ///
    /// If one refuses the upload, its response becomes the final response, and the content is removed.
    func check(
        _ upload: Upload,
        _ listener: ResponseListener
    ) throws(SpoolError) -> Checked {
        guard route.authorizer != nil && upload.isRecorded || route.inspection != nil else {
            return .cleared
        }
        // Requests for this upload must wait for the final response, and must not request the upload's release.
        upload.awaitFinalResponse()
        let place = WaitingPlace(deliveries.admission, for: ticket)
        guard place.take() else {
            guard upload.isRecorded else { return .ended(place.refusal ?? .tooManyWait) }
            return .ended(
                try postpone(
                    upload,
                    reason: "too many waiting requests; check why the upstream or the "
                        + "authorizer is slow",
                    listener.isResumable ? listener.unheard : listener,
                    telling: .tooManyWait
                )
            )
        }
        defer { place.giveBack() }
        switch try clearance(of: upload, listener) {
        case .cleared:
            return .cleared
        case .postponed(let reason):
            journal.notSent(on: route.counts, of: upload.creation.client, reason: reason)
            // The checks do not count as attempts, so the pauses grow with the upload's waiting time.
            let waited = upload.completeSince.map {
                deliveries.clock.confirmed.seconds - $0.seconds
            }
            return .ended(
                try postpone(
                    upload,
                    reason: reason,
                    listener,
                    asked: waited.map { Int(max(0, $0)) },
                    telling: .notChecked(isKept: upload.isRecorded)
                )
            )
        case .lacksCredentials(let refusal, let reason):
            return .ended(
                try postpone(
                    upload,
                    reason: reason,
                    listener,
                    telling: refusal,
                    lacksCredentials: true
                )
            )
        case .refused(let response, let reason, let message):
            try refuse(upload, response, reason: reason, message, listener)
            return .ended(nil)
        }
    }

    private func refuse(
        _ upload: Upload,
        _ response: Response,
        reason: String,
        _ message: String?,
        _ listener: ResponseListener
    ) throws(SpoolError) {
        let status = response.head.status.code
        guard upload.isRecorded else {
            journal.refused(upload, status: status, reason: reason, told: message)
            listener.exchange?.answer(response)
            return
        }
        try upload.finish(with: StoredResponse(head: response.head, content: response.content))
        journal.refused(upload, status: status, reason: reason)
        let final = listener.final(response.head, of: upload)
        listener.exchange?.answer(final.answer(with: response.content))
    }

    /// Treats a status of 407, 408, 429 or 5xx as a failure of the service, not as a final response.
    private func clearance(
        of upload: Upload,
        _ listener: ResponseListener
    ) throws(SpoolError) -> Clearance {
        let length = upload.offset
        if let inspection = route.inspection {
            let verdict = try upload.withDataPath { path throws(SpoolError) in
                try inspection.run(path, about: upload.creation, length: length) {
                    () throws(SpoolError) in try listener.heartbeat?.beat(upload)
                }
            }
            switch verdict {
            case .passed: break
            case .refused(let message):
                return .refused(
                    Refusal.notTaken(message: message).response,
                    reason: "refused by the inspection"
                        + (message.isEmpty ? ", which gave no reason" : ": \(message)"),
                    message: message
                )
            case .failed(let reason): return .postponed(reason: reason)
            }
        }
        // An upload without a record was just authorized in this request.
        guard let authorizer = route.authorizer, upload.isRecorded else { return .cleared }
        var failure: SpoolError?
        let answer = authorizer.ask(
            at: .delivery,
            about: upload.creation,
            length: length,
            completing: listener.completing,
            policy: route.settings.fields
        ) {
            guard failure == nil else { return }
            do throws(SpoolError) { try listener.heartbeat?.beat(upload) } catch { failure = error }
        }
        if let failure { throw failure }
        switch answer {
        case .granted(let grant):
            guard isOwner(of: upload, grant, listener.completing) else {
                let reason = "the authorizer named a different owner than at the creation"
                return .lacksCredentials(.otherOwner, reason: reason)
            }
            return .cleared
        case .unavailable(let reason): return .postponed(reason: reason)
        case .refused(let response):
            let status = response.head.status.code
            let reason = "the authorizer responded with \(status)"
            let isAccepted = route.hasAccepted(nextAttempt: upload.nextAttempt)
            let client = listener.knowledge(isAccepted: isAccepted)
            if status == 401,
                AttemptFate(after: .unauthorized, isRepeatable: false, client) == .deferredForClient
            {
                let challenges = response.head.fields[values: .wwwAuthenticate]
                return .lacksCredentials(.credentialsRefused(challenges), reason: reason)
            }
            return status >= 500 || [407, 408, 429].contains(status)
                ? .postponed(reason: reason) : .refused(response, reason: reason)
        }
    }

    /// Whether the authorizer still names the owner that it named at the creation.
    ///
    /// If the authorizer now names none, the credentials in the request to the authorizer decide.
    private func isOwner(of upload: Upload, _ grant: Grant, _ completing: HTTPFields?) -> Bool {
        guard let owner = upload.creation.authorizedOwner else { return true }
        if let named = grant.owner { return named == owner }
        let replaced = UpstreamFields.keptOfCompletion(
            completing ?? [:],
            of: upload.creation.head.fields,
            policy: route.settings.fields
        )
        return route.settings.fields.credentials == .completing || replaced.isEmpty
    }
}
