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
        /// The grant has the authorizer's new values for the credentials that it set at the creation; nil if it has none.
        case cleared(Grant?)
        /// The delivery must not continue. `deliver` must return the value.
        case ended(Refusal?)
    }

    private enum Clearance {
        case cleared(Grant?)
        /// `response` is for a waiting client; `message` is the inspection's own.
        case decided(AttemptResult, Response, reason: String, message: String? = nil)
        /// The checks are repeated at the next attempt.
        case unchecked(reason: String)
    }

    /// Runs the checks.
    ///
    /// `AttemptDecision` decides what follows if one refuses the upload.
    func check(
        _ upload: Upload,
        _ listener: ResponseListener
    ) throws(SpoolError) -> Checked {
        guard route.authorizer != nil && upload.isRecorded || route.inspection != nil else {
            return .cleared(nil)
        }
        // Requests for this upload must wait for the final response, and must not request the upload's release.
        upload.awaitFinalResponse()
        let place = WaitingPlace(deliveries.admission, for: ticket)
        guard place.take() else {
            guard upload.isRecorded else { return .ended(place.refusal ?? .tooManyWait) }
            let reason =
                "too many waiting requests; check why the upstream or the authorizer is slow"
            let listener = listener.isResumable ? listener.storingOnly : listener
            return .ended(try postpone(upload, listener, reason, .tooManyWait))
        }
        defer { place.giveBack() }
        switch try clearance(of: upload, listener) {
        case .cleared(let grant):
            return .cleared(grant)
        case .unchecked(let reason):
            journal.notSent(on: route.counts, of: upload.creation.client, reason: reason)
            // The checks do not count as attempts, so the pauses grow with the upload's waiting time.
            let waited = upload.completeSince.map {
                deliveries.clock.confirmed.seconds - $0.seconds
            }
            let pause = waited.map { Int(max(0, $0)) }
            let refusal = Refusal.notChecked(isKept: upload.isRecorded)
            return .ended(try postpone(upload, listener, reason, refusal, retryAfter: pause))
        case .decided(let result, let response, let reason, let message):
            return .ended(try refuse(upload, result, response, reason: reason, message, listener))
        }
    }

    /// Carries out a check's refusal of the upload; returns the refusal to send if the upload is deferred.
    private func refuse(
        _ upload: Upload,
        _ result: AttemptResult,
        _ response: Response,
        reason: String,
        _ message: String?,
        _ listener: ResponseListener
    ) throws(SpoolError) -> Refusal? {
        let status = response.head.status.code
        guard upload.isRecorded else {
            journal.refused(upload, status: status, reason: reason, message: message)
            listener.exchange?.respond(response)
            return nil
        }
        let client = listener.knowledge(isAccepted: route.hasAccepted(upload))
        // No check is repeated after success, so a repetition is always safe.
        let decision = AttemptDecision(after: result, isRepeatable: true, client)
        let stored = StoredResponse(head: response.head, content: response.content)
        switch decision {
        case .deferred, .deferredForClient, .held:
            let refusal =
                reason == Self.otherOwner
                ? Refusal.otherOwner
                : .credentialsRefused(response.head.fields[values: .wwwAuthenticate])
            return try postpone(upload, listener, reason, refusal, lacksCredentials: true)
        case .failed, .heldWithResponse:
            try hold(upload, listener, .failed, reason, stored)
            deliveries.holdSizes.add(upload)
            journal.failed(upload, status: status, reason: reason)
        case .delivered, .refused:
            try upload.finish(with: stored)
            journal.refused(upload, status: status, reason: reason)
        }
        let final = listener.final(response.head, of: upload, isSuccess: false)
        listener.exchange?.respond(final.response(with: response.content))
        return nil
    }

    private static let otherOwner = "the authorizer named a different owner than at the creation"

    /// Treats a status that only means "not now", and 5xx, as a failure of the service, not as a final response.
    private func clearance(
        of upload: Upload,
        _ listener: ResponseListener
    ) throws(SpoolError) -> Clearance {
        let length = upload.offset
        if let inspection = route.inspection {
            let result = try upload.withDataPath { path throws(SpoolError) in
                try inspection.run(path, about: upload.creation, length: length) {
                    () throws(SpoolError) in try listener.heartbeat?.beat(upload)
                }
            }
            switch result {
            case .passed: break
            case .refused(let message):
                return .decided(
                    .notPassed,
                    Refusal.notTaken(message: message).response,
                    reason: "refused by the inspection"
                        + (message.isEmpty ? ", which gave no reason" : ": \(message)"),
                    message: message
                )
            case .failed(let reason): return .unchecked(reason: reason)
            }
        }
        // An upload without a record was just authorized in this request.
        guard let authorizer = route.authorizer, upload.isRecorded else { return .cleared(nil) }
        var failure: SpoolError?
        let decision = authorizer.authorize(
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
        switch decision {
        case .granted(var grant):
            guard isOwner(of: upload, grant, listener.completing) else {
                return .decided(
                    .notAuthorized,
                    Refusal.otherOwner.response,
                    reason: Self.otherOwner
                )
            }
            // All other fields belong to the whole life of the upload; without an owner, anyone may have completed it.
            let isNamed = grant.owner != nil || upload.creation.authorizedOwner == nil
            grant.fields = grant.fields.filter {
                isNamed
                    && route.settings.fields.isGrantedCredential(
                        $0.name,
                        upload.creation.head.granted
                    )
            }
            return .cleared(grant.fields.isEmpty ? nil : grant)
        case .unavailable(let reason): return .unchecked(reason: reason)
        case .refused(let response):
            let status = response.head.status.code
            let reason = "the authorizer responded with \(status)"
            if let refusal = response.loginRefusal {
                return .decided(.notAuthorized, refusal.response, reason: reason)
            }
            if status == 401 { return .decided(.notAuthorized, response, reason: reason) }
            return status >= 500 || [407, 408, 421, 423, 425, 429].contains(status)
                ? .unchecked(reason: reason) : .decided(.notPermitted, response, reason: reason)
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
            granted: upload.creation.head.granted,
            policy: route.settings.fields
        ).filter { !upload.creation.head.granted.contains($0.name) }
        return route.settings.fields.credentials == .completing || replaced.isEmpty
    }
}
