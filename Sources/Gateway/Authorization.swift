// Whether an upload may come in: the route's word on clients that nobody names, then the authorizer's, and
// what that means for one request: let in with what it grants, or answered unread.
//
// Asked before content is read; the question before the delivery is DeliveryChecks'. Invariant: a
// request that the authorizer did not let in has had no byte of its content read.

import HTTPTypes
import Posix
import Spool
import UploadProtocol
import Upstream

extension Transaction {
    /// Answers the upload of a client whom the web server does not name, where the route refuses those.
    ///
    /// - Returns: whether it was answered.
    func refusesAnonymous(_ request: UploadRequest) -> Bool {
        guard request.beginsUpload, route.settings.anonymous == .refuse,
            exchange.context.owner == nil
        else { return false }
        log.anonymousRefused(route: routeName, target: head.target)
        if case .creation = request {
            refuse(.anonymousRefused)
        } else {
            refusePlain(.anonymousRefused)
        }
        return true
    }

    /// Asks the authorizer about a creation or an ordinary upload.
    ///
    /// - Parameter creation: what a creation says of the upload; nil for an ordinary upload.
    /// - Returns: this transaction with what is granted; nil when the request was answered here.
    func authorized(_ creation: UploadRequest.Creation? = nil) -> Transaction? {
        guard let authorizer = checks.authorizer else { return self }
        let place = waitingPlace
        guard place.take() else {
            let refusal = place.refusal ?? .tooManyWait
            noteTurnedAway(refusal)
            if creation == nil { refusePlain(refusal) } else { refuse(refusal) }
            return nil
        }
        let length = creation.map(\.length) ?? head.contentLength.count
        let answer = authorizer.ask(
            AuthorizationQuestion(
                moment: .creation,
                head: head,
                length: length,
                owner: exchange.context.owner,
                remoteAddress: exchange.context.remoteAddress,
                scheme: exchange.context.scheme
            )
        )
        place.giveBack()
        switch answer {
        case .granted(let grant):
            for name in grant.refusedNames { log.fieldNotSet(route: routeName, field: name) }
            var granted = limited(to: grant.maxSize)
            granted.grant = grant
            granted.head.fields = grant.applied(to: head.fields)
            let isOver = max(length ?? 0, head.contentLength.count ?? 0)
            guard isOver <= granted.route.limits.maxSize else {
                let maxSize = granted.route.limits.maxSize
                if creation == nil {
                    refusePlain(.plainTooLarge(maxSize: maxSize))
                } else {
                    granted.refuse(.tooLarge(maxSize: maxSize))
                }
                return nil
            }
            return granted
        case .refused(let response):
            log.notAuthorized(
                route: routeName,
                target: head.target,
                status: response.head.status.code
            )
            exchange.answer(response)
        case .unavailable(let reason):
            log.authorizationFailed(route: routeName, target: head.target, reason: reason)
            if creation == nil {
                refusePlain(.notChecked(isKept: false))
            } else {
                refuse(.notChecked(isKept: false))
            }
        }
        return nil
    }

    /// This transaction as a request on that upload: with the upload's own limits and in its name.
    func on(_ upload: Upload) -> Transaction {
        var transaction = limited(to: upload.creation.maxSize)
        transaction.log = gateway.log.correlated(gateway.events.correlation(of: upload.creation))
        transaction.answers.isSegmented = upload.creation.isSegmented
        return transaction
    }

    private func limited(to maxSize: Int64?) -> Transaction {
        guard let maxSize, maxSize < route.limits.maxSize else { return self }
        var transaction = self
        transaction.route = route.changed { $0.limits.maxSize = maxSize }
        transaction.answers.limits.maxSize = maxSize
        return transaction
    }
}

extension UploadCreation {
    /// Whether it said that more comes than its own content.
    fileprivate var isSegmented: Bool {
        UploadRequest.isSegmented(head, Dialect(of: head.fields))
    }
}
