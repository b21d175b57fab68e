// The gate: the one place that admits a request before its content is read.
//
// Every request that begins an upload passes here, whatever its protocol: its digests must be ones that can be
// verified, its client must not be anonymous if the route refuses those, the hold queue must have room if the route
// accepts first, and the authorizer must grant it. `UploadRequest` has already classified it and refused a known size
// above the route's; the authorizer's own size is checked here. The question before the delivery is DeliveryChecks'.
// Invariant: no byte of content is read for a request that was not admitted.

import HTTPTypes
import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

extension Request {
    /// Admits a request.
    ///
    /// - Parameter asked: the request, classified.
    /// - Returns: whether it is admitted, with what the authorizer grants it; false if it was answered here.
    @inline(never)
    func isAdmitted(_ asked: UploadRequest) -> Bool {
        switch asked {
        case .creation, .append:
            if let refusal = DigestPlan.refusal(of: head.fields) {
                refuse(refusal)
                return false
            }
        default: break
        }
        if asked.isSentOn, route.gateway.isNamed(in: head.fields) {
            refuseLoop()
            return false
        }
        guard asked.beginsUpload else { return true }
        if refusesPart() || refusesAnonymous() || refusesForHold() { return false }
        guard let authorizer = route.authorizer else { return true }
        return isAuthorized(by: authorizer, length: asked.length(of: head))
    }

    /// Refuses a request that this gateway has sent itself.
    private func refuseLoop() {
        if let count = gateway.turnedAway.update({ $0.note("a loop of \(route.name)") }) {
            log.cameBack(route: route.name, target: head.target, count: count)
        }
        refuse(.loop)
    }

    /// Refuses a part of a representation, by `Content-Range`, if the gateway makes a file, an object or a form of what
    /// it receives, or has it inspected: each would take the part for the whole.
    ///
    /// - Returns: whether it was refused.
    private func refusesPart() -> Bool {
        guard route.needsWhole(for: head), head.fields.contentRange != nil else { return false }
        refuse(.partialContent)
        return true
    }

    /// Refuses a client that the web server does not name, if the route refuses those.
    ///
    /// - Returns: whether it was refused.
    private func refusesAnonymous() -> Bool {
        guard route.settings.anonymous == .refuse, context.owner == nil else { return false }
        log.anonymousRefused(route: route.name, target: head.target)
        refuse(.anonymousRefused)
        return true
    }

    /// Refuses an upload that was to be accepted, where `hold` has no room for more that fail.
    ///
    /// - Returns: whether it was refused.
    private func refusesForHold() -> Bool {
        guard route.settings.reply == .accepted,
            gateway.deliveries.isHoldFull(route)
        else { return false }
        gateway.deliveries.noteHoldFull(route)
        refuse(.notAccepted)
        return true
    }

    /// Asks the authorizer about a request that begins an upload.
    ///
    /// - Parameters:
    ///   - authorizer: the route's.
    ///   - length: bytes of the upload, if known.
    /// - Returns: whether it is granted; false if the request was answered here.
    private func isAuthorized(by authorizer: Authorizer, length: Int64?) -> Bool {
        guard let place = takeWaitingPlace() else { return false }
        let answer = authorizer.ask(at: .creation, about: newUpload(), length: length)
        place.giveBack()
        switch answer {
        case .granted(let grant):
            for name in grant.refusedNames { log.fieldNotSet(route: route.name, field: name) }
            take(grant)
            let size = max(length ?? 0, head.contentLength.count ?? 0)
            guard let refusal = route.settings.limits.refusal(ofSize: size) else { return true }
            refuse(refusal)
        case .refused(let response):
            log.notAuthorized(
                route: route.name,
                target: head.target,
                status: response.head.status.code
            )
            if response.head.status.code >= 500 {
                journal.notSent(
                    on: route.counts,
                    of: client,
                    reason: "the authorizer responded with \(response.head.status.code)"
                )
            }
            exchange.answer(response)
        case .unavailable(let reason):
            journal.notSent(on: route.counts, of: client, reason: reason)
            log.authorizationFailed(route: route.name, target: head.target, reason: reason)
            refuse(.notChecked(isKept: false))
        }
        return false
    }
}

extension UploadRequest {
    /// Whether the upstream gets it, or an upload that it begins.
    fileprivate var isSentOn: Bool {
        switch self {
        case .options, .passThrough: true
        default: beginsUpload
        }
    }

    /// Bytes of the whole upload that a request begins, if its head tells them.
    fileprivate func length(of head: RequestHead) -> Int64? {
        switch self {
        case .creation(let creation): creation.length
        case .passedUpload(_, let length): length
        case .ordinaryUpload: head.representationLength
        default: nil
        }
    }
}
