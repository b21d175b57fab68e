// The only place that admits requests that begin an upload, before their content is read.
//
// `UploadRequest` has refused sizes that are known to exceed the route's limit; this file checks the authorizer's
// limit. `Delivery+Checks` asks the authorizer again before the delivery. Invariant: a request's content is read only
// after its admission.

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
    /// Decides whether the request may begin, and applies what the authorizer grants; returns false if it was refused.
    @inline(never)
    func isAdmitted(_ classified: UploadRequest) -> Bool {
        switch classified {
        case .creation, .append:
            if let refusal = DigestPlan.refusal(of: head.fields) {
                refuse(refusal)
                return false
            }
        default: break
        }
        // An invalid or repeated value counts as 1 (RFC 8470 §5.1).
        if head.fields.contains(.earlyData), !head.method.isSafe {
            refuse(.tooEarly)
            return false
        }
        if classified.isSentOn, route.gateway.isNamed(in: head.fields) {
            refuseLoop()
            return false
        }
        guard classified.beginsUpload else { return true }
        if refusesPart() || refusesAnonymous() || refusesForHold() { return false }
        guard let authorizer = route.authorizer else { return true }
        return isAuthorized(by: authorizer, length: classified.length(of: head))
    }

    private func refuseLoop() {
        if let count = gateway.rejected.update({ $0.note("a loop of \(route.name)") }) {
            log.cameBack(route: route.name, target: head.target, count: count)
        }
        refuse(.loop)
    }

    /// Refuses a request with a partial representation (`Content-Range`) if the upload would treat the part as the
    /// whole; returns true if it was refused.
    ///
    /// The upload would do so if the gateway stores uploads as files or objects, puts them into a form, or has them
    /// inspected.
    private func refusesPart() -> Bool {
        guard route.needsWhole(for: head), head.fields.contentRange != nil else { return false }
        refuse(.partialContent)
        return true
    }

    private func refusesAnonymous() -> Bool {
        guard route.settings.anonymous == .refuse, context.owner == nil else { return false }
        log.anonymousRefused(route: route.name, target: head.target)
        refuse(.anonymousRefused)
        return true
    }

    /// Refuses the upload if the route replies `accepted` and `hold` has no space to keep it if its delivery fails;
    /// returns true if it was refused.
    private func refusesForHold() -> Bool {
        guard route.settings.reply == .accepted,
            gateway.deliveries.isHoldFull(route)
        else { return false }
        gateway.deliveries.noteHoldFull(route)
        refuse(.notAccepted)
        return true
    }

    /// Asks the authorizer whether the upload that the request begins is authorized; returns false if a refusal was
    /// sent.
    ///
    /// Pass nil for `length` if the upload's number of bytes is unknown.
    private func isAuthorized(by authorizer: Authorizer, length: Int64?) -> Bool {
        guard let place = takeWaitingPlace() else { return false }
        let decision = authorizer.authorize(at: .creation, about: newUpload(), length: length)
        place.giveBack()
        switch decision {
        case .granted(var grant):
            if let name = gateway.deliveries.current.settings.correlationField {
                grant.refuse(name)
            }
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
            // A browser's form follows the redirect to the login.
            if !isOrdinary, let refusal = response.loginRefusal {
                refuse(refusal)
            } else {
                exchange.respond(response)
            }
        case .unavailable(let reason):
            journal.notSent(on: route.counts, of: client, reason: reason)
            log.authorizationFailed(route: route.name, target: head.target, reason: reason)
            refuse(.notChecked(isKept: false))
        }
        return false
    }
}

extension HTTPField.Name {
    fileprivate static let earlyData = made("early-data")
}

extension UploadRequest {
    /// Whether the upstream receives this request, or the upload that it begins.
    fileprivate var isSentOn: Bool {
        switch self {
        case .options, .passThrough: true
        default: beginsUpload
        }
    }

    /// The number of bytes of the upload; nil if the head does not state it.
    fileprivate func length(of head: RequestHead) -> Int64? {
        switch self {
        case .creation(let creation): creation.length
        case .passedUpload(_, let length): length
        case .ordinaryUpload: head.representationLength
        default: nil
        }
    }
}
