// The errors of the gateway itself, one entry each: delivery, capacity, and requests that a front
// could not take.
//
// The protocol's errors are in ProtocolRefusals.swift; nothing is decided in either. Invariant: a
// detail names nothing of the inside but a given reason.

import HTTPTypes

// MARK: Delivery

extension Refusal {
    /// 423: an offset retrieval while the upstream works, of a client that takes the offset for success.
    package static let finalResponsePending = Refusal(
        status: locked,
        code: "final-response-pending",
        title: "delivery under way",
        detail: "The upload is being delivered. Ask again in a moment.",
        retryAfter: 5
    )

    /// 503: an upload is whole, and no attempt could begin in time.
    ///
    /// A client that can resume hears
    /// nothing instead (`isOnlyLater`).
    package static let deliveryUnderWay = Refusal(
        status: .serviceUnavailable,
        code: "delivery-under-way",
        title: "delivery under way",
        detail: """
            The upload is complete and waits for its delivery. Repeat this request in a moment to get \
            the final response.
            """,
        retryAfter: 5,
        isOnlyLater: true
    )

    /// 502: an append to an upload that was sent on and got no answer; nothing will repeat it.
    package static let outcomeUnknown = Refusal(
        status: .badGateway,
        code: "outcome-unknown",
        title: "outcome unknown",
        detail: """
            The upload was sent on, but no answer came, so nobody here knows whether it was taken. \
            Check at its destination before uploading it again.
            """,
        completeness: .complete
    )

    /// 410: the same for an offset retrieval, so that no client takes the offset for success.
    package static let outcomeUnknownGone = outcomeUnknown.told(as: .gone)

    /// 502: an append to an upload that was tried for as long as the queue keeps one.
    package static let deliveryFailed = Refusal(
        status: .badGateway,
        code: "delivery-failed",
        title: "delivery failed",
        detail: """
            The upload is stored, but could not be delivered, and nothing tries again by itself. \
            Ask the operator of this server.
            """,
        completeness: .complete
    )

    /// 410: the same for an offset retrieval, so that no client takes the offset for success.
    package static let deliveryFailedGone = deliveryFailed.told(as: .gone)

    /// 503: an upload that would be accepted, while too many before it have failed and wait for a person.
    package static let notAccepted = Refusal(
        status: .serviceUnavailable,
        code: "hold-full",
        title: "upload not accepted",
        detail: """
            Too many uploads before this one could not be delivered. Try again later, or ask \
            the operator of this server.
            """,
        retryAfter: 300
    )

    /// 503: an append to an upload that an operator keeps from being delivered.
    package static let uploadHeld = Refusal(
        status: .serviceUnavailable,
        code: "upload-held",
        title: "upload held",
        detail: "The upload is stored, and an operator holds it back. Ask again later.",
        retryAfter: 300
    )

    /// 409: a cancellation of an upload that is kept for a person.
    package static let keptForOperator = Refusal(
        status: .conflict,
        code: "kept-for-operator",
        title: "upload not cancelled",
        detail: """
            The upload is kept for the operator of this server, who alone can remove it. Ask them.
            """
    )

    /// 503: the upstream answered that it cannot take the upload now.
    ///
    /// - Parameters:
    ///   - retryAfter: seconds that it asked for; nil: it did not say.
    ///   - isKept: whether the bytes are kept, so that an empty completing append tries again.
    /// - Returns: with `isKept` false, a refusal of an ordinary request.
    package static func upstreamBusy(retryAfter: Int?, isKept: Bool = true) -> Refusal {
        Refusal(
            status: .serviceUnavailable,
            code: "upstream-busy",
            title: "upstream busy",
            detail: isKept
                ? stored(", but the server it is for cannot take it now")
                : "The server this is for cannot take it now. Try again later.",
            retryAfter: retryAfter ?? 30,
            isOrdinary: !isKept
        )
    }

    /// 401: the upstream, or the authorizer, wants other credentials than the upload was delivered with; the bytes are
    /// kept.
    ///
    /// - Parameter challenges: the values of `WWW-Authenticate` that came with the answer.
    /// - Returns: a refusal that asks for an empty completing append with other credentials (RFC 9110 §15.5.2).
    package static func credentialsRefused(_ challenges: [String]) -> Refusal {
        Refusal(
            status: .unauthorized,
            code: "credentials-refused",
            title: "credentials refused",
            detail: stored(", but the server it is for does not accept its credentials")
                + " Send new credentials of the same kind with it.",
            fields: HTTPFields(
                challenges.map { HTTPField(name: .wwwAuthenticate, value: $0) }
            )
        )
    }

    /// 403: the credentials of the request that completes an upload are another owner's; the bytes are kept.
    package static let otherOwner = Refusal(
        status: .forbidden,
        code: "other-owner",
        title: "credentials of another owner",
        detail: stored(", but the credentials of this request are not its owner's.")
    )

    /// 502: the upstream redirects an upload to a place that the gateway does not follow to; the bytes are kept.
    package static let upstreamRedirects = Refusal(
        status: .badGateway,
        code: "upstream-redirects",
        title: "upstream redirects",
        detail: stored(", but the server it is for redirects it to another place"),
        retryAfter: 60
    )

    /// 503: the last attempt to deliver an upload was too short a time ago.
    ///
    /// - Parameter seconds: until the next one may be asked for.
    /// - Returns: a refusal that asks for an empty completing append then.
    package static func deliveryPauses(_ seconds: Int) -> Refusal {
        Refusal(
            status: .serviceUnavailable,
            code: "delivery-pauses",
            title: "too soon after the last attempt",
            detail: stored(", and the last attempt to deliver it was moments ago"),
            retryAfter: seconds
        )
    }

    /// 410: an offset retrieval of an upload that the upstream answered with an error, so that no
    /// client takes the offset for success.
    package static let upstreamRefusedGone = Refusal(
        status: .gone,
        code: "upstream-refused",
        title: "upload refused",
        detail: """
            The upload was delivered whole, and the server it is for refused it. An empty append \
            with Upload-Complete: ?1 at its end gets that answer again.
            """,
        completeness: .complete
    )

    /// 502 or 504: the upstream was not reached, nothing of the upload was processed there.
    ///
    /// - Parameters:
    ///   - timedOut: whether a deadline ended it: 504.
    ///   - isKept: whether the bytes are kept, so that an empty completing append tries again.
    /// - Returns: with `isKept` false, a refusal of an ordinary request.
    package static func notReached(timedOut: Bool, isKept: Bool) -> Refusal {
        let reason = timedOut ? "its time ran out" : "no connection could be made"
        return Refusal(
            status: timedOut ? .gatewayTimeout : .badGateway,
            code: "upstream-not-reached",
            title: "upstream not reached",
            detail: isKept
                ? stored(", but the server it is for could not be reached: \(reason)")
                : "The server this is for could not be reached: \(reason). Try again later.",
            retryAfter: 10,
            isOrdinary: !isKept
        )
    }

    /// 502 or 504: the upstream was sent an upload that may be sent again, and gave no answer; the bytes
    /// are kept.
    ///
    /// - Parameters:
    ///   - reason: a clause for the client, without names or addresses of the inside.
    ///   - timedOut: whether a deadline ended it: 504.
    /// - Returns: a refusal that asks for an empty completing append.
    package static func upstreamBrokeOff(reason: String, timedOut: Bool = false) -> Refusal {
        Refusal(
            status: timedOut ? .gatewayTimeout : .badGateway,
            code: "upstream-broke-off",
            title: "no answer from upstream",
            detail: stored(" and was sent on, but no answer came: \(reason)"),
            retryAfter: 10
        )
    }

    /// 507: where the upload is to go there is no room; nothing of it was taken.
    ///
    /// - Parameter isKept: whether the bytes are kept, so that an empty completing append tries again.
    /// - Returns: with `isKept` false, a refusal of an ordinary request.
    package static func destinationFull(isKept: Bool) -> Refusal {
        Refusal(
            status: insufficientStorage,
            code: "destination-full",
            title: "destination full",
            detail: isKept
                ? stored(", but there is no room where it is to go")
                : "There is no room where this is to go. Try again later.",
            retryAfter: 60,
            isOrdinary: !isKept
        )
    }

    /// 502 or 504: the upstream was sent the request and gave no answer; the outcome is unknown.
    ///
    /// - Parameters:
    ///   - reason: a clause for the client, without names or addresses of the inside.
    ///   - timedOut: whether a deadline ended it: 504.
    /// - Returns: a refusal that tells the client not to resume.
    package static func upstreamSilent(reason: String, timedOut: Bool = false) -> Refusal {
        Refusal(
            status: timedOut ? .gatewayTimeout : .badGateway,
            code: "upstream-silent",
            title: "no answer from upstream",
            detail: """
                The request was sent on, but no answer came: \(reason). Check whether it was \
                taken before you repeat it.
                """,
            completeness: .complete
        )
    }
}

extension Refusal {
    /// What the client of an upload reads that is kept, but not delivered: `clause` and what to do.
    private static func stored(_ clause: String) -> String {
        "The upload is stored\(clause). Send an empty append with Upload-Complete: ?1 later."
    }
}

// MARK: Loops

extension Refusal {
    /// 508: the gateway itself has sent the request, so that what it sends comes back to it without end.
    package static let loop = Refusal(
        status: HTTPResponse.Status(code: 508, reasonPhrase: "Loop Detected"),
        code: "loop",
        title: "request came back",
        detail: """
            This request has passed this gateway before: what it is sent on to leads back here. Tell the operator of \
            this server.
            """,
        completeness: .complete
    )
}

// MARK: Checks

extension Refusal {
    /// 403: an upload of a client of whom the web server did not say who it is, where the route takes
    /// none such.
    package static let anonymousRefused = Refusal(
        status: .forbidden,
        code: "anonymous-refused",
        title: "anonymous upload",
        detail: "Uploads are taken here only from clients that are logged in."
    )

    /// 503: nobody could be asked whether the upload may come in, or be delivered.
    ///
    /// - Parameter isKept: whether the bytes are kept, so that an empty completing append tries again.
    /// - Returns: a refusal that asks to come back.
    package static func notChecked(isKept: Bool) -> Refusal {
        Refusal(
            status: .serviceUnavailable,
            code: "check-unavailable",
            title: "upload not checked",
            detail: isKept
                ? stored(", but could not be checked before it is sent on")
                : "The upload could not be checked. Try again later.",
            retryAfter: 10
        )
    }

    /// 422: the inspection refused the content.
    ///
    /// - Parameter message: what the inspection said; empty: nothing.
    /// - Returns: a refusal that is the upload's final response.
    package static func notTaken(message: String) -> Refusal {
        Refusal(
            status: .unprocessableContent,
            code: "inspection-refused",
            title: "content refused",
            detail: message.isEmpty ? "This content is not taken here." : message,
            completeness: .complete
        )
    }
}

// MARK: Forwarding as it comes

extension Refusal {
    /// 501: an ordinary upload asks to be forwarded as it comes, where uploads are received whole (RFC 10036 §3, §5.1).
    package static let incrementalRefused = Refusal(
        status: .notImplemented,
        code: "incremental-refused",
        title: "not forwarded as it comes",
        detail:
            "This server receives uploads whole before it sends them on. Leave the field Incremental out.",
        fields: [.proxyStatus: "spoolgate; error=incremental_refused"],
        isOrdinary: true
    )
}

// MARK: The request as the front received it

extension Refusal {
    /// 400: no HTTP request we take; `reason` is a clause, without bytes of the request.
    package static func malformed(reason: String) -> Refusal {
        Refusal(
            status: .badRequest,
            code: "malformed-request",
            title: "malformed request",
            detail: "This request is malformed: \(reason).",
            isOrdinary: true
        )
    }

    /// 431: more field lines than `limit`.
    package static func tooManyFields(limit: Int) -> Refusal {
        Refusal(
            status: .requestHeaderFieldsTooLarge,
            code: "too-many-fields",
            title: "too many fields",
            detail: "A request may have at most \(limit) field lines here.",
            isOrdinary: true
        )
    }

    /// 431: names and values are longer than `limit` bytes together.
    package static func fieldsTooLarge(limit: Int) -> Refusal {
        Refusal(
            status: .requestHeaderFieldsTooLarge,
            code: "fields-too-large",
            title: "fields too large",
            detail: "The fields of a request may have at most \(limit) bytes together here.",
            isOrdinary: true
        )
    }

    /// 414: the request target is longer than `limit` bytes.
    package static func targetTooLong(limit: Int) -> Refusal {
        Refusal(
            status: .uriTooLong,
            code: "target-too-long",
            title: "request target too long",
            detail: "A request target may have at most \(limit) bytes here.",
            isOrdinary: true
        )
    }

    /// 500: the web server's configuration is wrong; the operator's mistake, told plainly.
    package static func frontMisconfigured(_ detail: String) -> Refusal {
        Refusal(
            status: .internalServerError,
            code: "front-misconfigured",
            title: "web server misconfigured",
            detail: detail,
            isOrdinary: true
        )
    }

    /// 500: the web server names a route that the settings do not have, or none and there is no
    /// default; the operator's mistake.
    package static func unknownRoute(name: String?) -> Refusal {
        let what = name.map { "the route \"\($0)\", which is not" } ?? "no route, and no default is"
        return Refusal(
            status: .internalServerError,
            code: "unknown-route",
            title: "unknown route",
            detail: "The web server named \(what) in the settings of spoolgate.",
            isOrdinary: true
        )
    }
}

private let locked = HTTPResponse.Status(code: 423, reasonPhrase: "Locked")
let insufficientStorage = HTTPResponse.Status(
    code: 507,
    reasonPhrase: "Insufficient Storage"
)
