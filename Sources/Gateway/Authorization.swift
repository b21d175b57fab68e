// Whether an upload may come in: the route's word on clients that nobody names, then the authorizer's, and
// what that means for one request: let in with what it grants, or answered unread.
//
// Asked before content is read; the question before the delivery is DeliveryChecks'. Invariant: a
// request that the authorizer did not let in has had no byte of its content read.

import Delivery
import Exchange
import HTTPTypes
import Journal
import Settings
import Spool
import TextFormats
import UploadProtocol

extension Request {
    /// Answers the upload of a client whom the web server does not name, where the route refuses those.
    ///
    /// - Returns: whether it was answered.
    func refusesAnonymous(_ request: UploadRequest) -> Bool {
        guard request.beginsUpload, route.settings.anonymous == .refuse,
            context.owner == nil
        else { return false }
        log.anonymousRefused(route: route.name, target: head.target)
        refuse(.anonymousRefused)
        return true
    }

    /// Asks the authorizer about a creation or an ordinary upload.
    ///
    /// - Parameter length: bytes of the upload, where known.
    /// - Returns: this request with what is granted; nil when the request was answered here.
    func authorized(length: Int64?) -> Request? {
        guard let authorizer = route.authorizer else { return self }
        guard let place = takeWaitingPlace() else { return nil }
        let answer = authorizer.ask(at: .creation, about: newUpload(), length: length)
        place.giveBack()
        switch answer {
        case .granted(let grant):
            for name in grant.refusedNames { log.fieldNotSet(route: route.name, field: name) }
            let granted = limited(to: grant.maxSize)
            granted.grant = grant
            granted.head.fields = grant.applied(to: head.fields)
            let maxSize = granted.route.settings.limits.maxSize
            let size = max(length ?? 0, head.contentLength.count ?? 0)
            if size <= maxSize { return granted }
            granted.refuse(.tooLarge(maxSize: maxSize))
        case .refused(let response):
            log.notAuthorized(
                route: route.name,
                target: head.target,
                status: response.head.status.code
            )
            exchange.answer(response)
        case .unavailable(let reason):
            log.authorizationFailed(route: route.name, target: head.target, reason: reason)
            refuse(.notChecked(isKept: false))
        }
        return nil
    }

    /// This request as a request on that upload: with the upload's own limits and in its name.
    func on(_ upload: Upload) -> Request {
        let request = limited(to: upload.creation.maxSize)
        request.journal = gateway.deliveries.journal.of(upload.creation)
        if isUnmarked, upload.state.kind.family == .tus {
            request.responses = gateway.responses(to: head, .tus, on: request.route)
        }
        // To the others a creation makes no difference.
        if request.dialect.repeatsAfterError {
            request.responses = request.responses.on(upload.creation.head)
        }
        return request
    }

    /// This request with limits of its own.
    private func limited(to maxSize: Int64?) -> Request {
        let request = Request(self)
        guard let maxSize, maxSize < route.settings.limits.maxSize else { return request }
        request.route = route.changed { $0.limits.maxSize = maxSize }
        request.responses.limits.maxSize = maxSize
        return request
    }
}
