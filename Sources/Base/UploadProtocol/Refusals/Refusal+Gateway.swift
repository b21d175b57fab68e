// The gateway's own refusals; the protocol's are in Refusal+Protocol.swift.
//
// Invariant: apart from a given reason, a detail reveals nothing internal.

import HTTPTypes

// MARK: Delivery

extension Refusal {
    /// 423: an offset retrieval during delivery, from a client that treats offset == length as success.
    package static let finalResponsePending = Refusal(
        status: locked,
        code: "final-response-pending",
        title: "delivery in progress",
        detail: "The upload is being delivered. Try again in a moment.",
        retryAfter: 5
    )

    /// 503: no attempt could start in time.
    ///
    /// A client that can resume receives no response instead (`isOnlyLater`).
    package static let deliveryUnderWay = Refusal(
        status: .serviceUnavailable,
        code: "delivery-under-way",
        title: "delivery in progress",
        detail: """
            The upload is complete and waiting for delivery. Repeat this request in a moment to get the \
            final response.
            """,
        retryAfter: 5,
        isOnlyLater: true
    )

    /// 502: an append to an upload that was sent upstream but got no response; the upload will not be sent again.
    package static let outcomeUnknown = Refusal(
        status: .badGateway,
        code: "outcome-unknown",
        title: "outcome unknown",
        detail: """
            The upload was sent to the upstream server, but no response was received, so it is unknown \
            whether the upload was processed. Check its destination before you upload it again.
            """,
        completeness: .complete
    )

    /// 410: an offset retrieval of an upload that got no response; no client may treat its offset as success.
    package static let outcomeUnknownGone = outcomeUnknown.with(status: .gone)

    /// 502: an append to an upload whose delivery is no longer retried.
    package static let deliveryFailed = Refusal(
        status: .badGateway,
        code: "delivery-failed",
        title: "delivery failed",
        detail: """
            The upload is stored, but could not be delivered, and delivery is not retried automatically. \
            Contact the operator of this server.
            """,
        completeness: .complete
    )

    /// 410: an offset retrieval of an upload whose delivery failed; no client may treat its offset as success.
    package static let deliveryFailedGone = deliveryFailed.with(status: .gone)

    /// 503: an upload cannot be accepted, because too many failed uploads are waiting for an operator.
    package static let notAccepted = Refusal(
        status: .serviceUnavailable,
        code: "hold-full",
        title: "upload not accepted",
        detail: """
            Too many earlier uploads could not be delivered. Try again later, or contact the operator of \
            this server.
            """,
        retryAfter: 300
    )

    package static let uploadHeld = Refusal(
        status: .serviceUnavailable,
        code: "upload-held",
        title: "upload on hold",
        detail: "The upload is stored, and an operator has put it on hold. Try again later.",
        retryAfter: 300
    )

    package static let keptForOperator = Refusal(
        status: .conflict,
        code: "kept-for-operator",
        title: "upload not cancelled",
        detail: """
            The upload is kept for the operator of this server. Only the operator can remove it.
            """
    )

    /// 503: the upstream cannot accept the upload now.
    ///
    /// `retryAfter` is the number of seconds to wait that the upstream named, or nil. If the content is kept
    /// (`isKept`), an empty completing append starts another attempt; otherwise the refusal is for an ordinary request.
    package static func upstreamBusy(retryAfter: Int?, isKept: Bool = true) -> Refusal {
        Refusal(
            status: .serviceUnavailable,
            code: "upstream-busy",
            title: "upstream busy",
            detail: isKept
                ? stored(", but the upstream server cannot accept it now")
                : "The upstream server cannot accept this request now. Try again later.",
            retryAfter: retryAfter ?? 30,
            isOrdinary: !isKept
        )
    }

    /// 401: the upstream or the authorizer refused the upload's credentials.
    ///
    /// `challenges` are the values of `WWW-Authenticate` in the response. If the content is kept (`isKept`), the refusal
    /// asks for an empty completing append with other credentials (RFC 9110 §15.5.2).
    package static func credentialsRefused(
        _ challenges: [String],
        isKept: Bool = true
    ) -> Refusal {
        Refusal(
            status: .unauthorized,
            code: "credentials-refused",
            title: "credentials refused",
            detail: isKept
                ? stored(", but the upstream server does not accept its credentials")
                    + " Include new credentials of the same kind."
                : "The credentials of this request are not accepted. Log in, then upload again.",
            fields: HTTPFields(
                challenges.map { HTTPField(name: .wwwAuthenticate, value: $0) }
            )
        )
    }

    package static let otherOwner = Refusal(
        status: .forbidden,
        code: "other-owner",
        title: "credentials of another owner",
        detail: stored(", but the credentials of this request belong to another owner")
    )

    package static let upstreamRedirects = Refusal(
        status: .badGateway,
        code: "upstream-redirects",
        title: "upstream redirected the upload",
        detail: stored(", but the upstream server redirects it to another location"),
        retryAfter: 60
    )

    /// 503: a delivery attempt is not started, because the last one was too recent.
    ///
    /// The refusal asks for an empty completing append after `seconds`.
    package static func deliveryPauses(_ seconds: Int) -> Refusal {
        Refusal(
            status: .serviceUnavailable,
            code: "delivery-pauses",
            title: "too soon after the last attempt",
            detail: stored(", and the last delivery attempt was only moments ago"),
            retryAfter: seconds
        )
    }

    /// 410: an offset retrieval of an upload that the upstream refused; no client may treat its offset as success.
    package static let upstreamRefusedGone = Refusal(
        status: .gone,
        code: "upstream-refused",
        title: "upload refused by upstream",
        detail: """
            The complete upload was sent to the upstream server, which refused it. To get the upstream \
            server's response again, send an empty append with Upload-Complete: ?1 at the final offset.
            """,
        completeness: .complete
    )

    /// 502 or 504: the upstream was not reached and processed nothing of the upload.
    ///
    /// The status is 504 if `timedOut` is true. If the content is kept (`isKept`), an empty completing append starts
    /// another attempt; otherwise the refusal is for an ordinary request.
    package static func notReached(timedOut: Bool, isKept: Bool) -> Refusal {
        let reason = timedOut ? "the connection timed out" : "the connection failed"
        return Refusal(
            status: timedOut ? .gatewayTimeout : .badGateway,
            code: "upstream-not-reached",
            title: "upstream not reached",
            detail: isKept
                ? stored(", but the upstream server could not be reached: \(reason)")
                : "The upstream server could not be reached: \(reason). Try again later.",
            retryAfter: 10,
            isOrdinary: !isKept
        )
    }

    /// 502 or 504: the upstream sent no response, and the upload may be sent again; the content is kept.
    ///
    /// The refusal asks for an empty completing append. `reason` is a clause for the client, without internal names or
    /// addresses. The status is 504 if `timedOut` is true.
    package static func upstreamBrokeOff(reason: String, timedOut: Bool = false) -> Refusal {
        Refusal(
            status: timedOut ? .gatewayTimeout : .badGateway,
            code: "upstream-broke-off",
            title: "no response from upstream",
            detail: stored(
                " and was sent to the upstream server, but no response was received: \(reason)"
            ),
            retryAfter: 10
        )
    }

    /// 507: the destination of the upload is full and accepted nothing.
    ///
    /// If the content is kept (`isKept`), an empty completing append starts another attempt; otherwise the refusal is
    /// for an ordinary request.
    package static func destinationFull(isKept: Bool) -> Refusal {
        Refusal(
            status: insufficientStorage,
            code: "destination-full",
            title: "destination full",
            detail: isKept
                ? stored(", but its destination has no space left")
                : "The destination has no space left. Try again later.",
            retryAfter: 60,
            isOrdinary: !isKept
        )
    }

    /// 502 or 504: the upstream sent no response; it is unknown whether it accepted the request.
    ///
    /// The refusal tells the client not to resume. `reason` is a clause for the client, without internal names or
    /// addresses. The status is 504 if `timedOut` is true.
    package static func upstreamSilent(reason: String, timedOut: Bool = false) -> Refusal {
        Refusal(
            status: timedOut ? .gatewayTimeout : .badGateway,
            code: "upstream-silent",
            title: "no response from upstream",
            detail: """
                The request was sent to the upstream server, but no response was received: \(reason). Check \
                whether it was processed before you repeat it.
                """,
            completeness: .complete
        )
    }
}

extension Refusal {
    /// Returns the detail for a kept upload: `clause` and an instruction for the client.
    private static func stored(_ clause: String) -> String {
        "The upload is stored\(clause). To retry, send an empty append with Upload-Complete: ?1 later."
    }
}

// MARK: Loops

extension Refusal {
    package static let loop = Refusal(
        status: HTTPResponse.Status(code: 508, reasonPhrase: "Loop Detected"),
        code: "loop",
        title: "request loop detected",
        detail: """
            This request has already passed through this gateway: the upstream leads back to it. Contact the operator \
            of this server.
            """,
        completeness: .complete
    )
}

// MARK: Checks

extension Refusal {
    package static let anonymousRefused = Refusal(
        status: .forbidden,
        code: "anonymous-refused",
        title: "anonymous upload refused",
        detail: "Uploads are accepted only from authenticated clients."
    )

    /// 503: the upload could not be checked before its creation or its delivery.
    ///
    /// If the content is kept (`isKept`), an empty completing append starts another attempt.
    package static func notChecked(isKept: Bool) -> Refusal {
        Refusal(
            status: .serviceUnavailable,
            code: "check-unavailable",
            title: "upload not checked",
            detail: isKept
                ? stored(", but could not be checked before its delivery")
                : "The upload could not be checked. Try again later.",
            retryAfter: 10
        )
    }

    /// 422: the inspection refused the content; this is the upload's final response.
    ///
    /// `message` is the inspection's message for the client, possibly empty.
    package static func notTaken(message: String) -> Refusal {
        Refusal(
            status: .unprocessableContent,
            code: "inspection-refused",
            title: "content refused",
            detail: message.isEmpty ? "This content is not accepted." : message,
            completeness: .complete
        )
    }
}

// MARK: Early data

extension Refusal {
    /// 425: the request is unsafe and may be a replay (RFC 8470 §5.2); the client sends it again after the handshake.
    package static let tooEarly = Refusal(
        status: HTTPResponse.Status(code: 425, reasonPhrase: "Too Early"),
        code: "too-early",
        title: "request sent too early",
        detail: "This request was sent as early data of TLS, which may be a replay. Send it again.",
        isOrdinary: true
    )
}

// MARK: Incremental forwarding

extension Refusal {
    /// 501: an ordinary upload asks for incremental forwarding, but uploads are received whole (RFC 10036 §3, §5.1).
    package static let incrementalRefused = Refusal(
        status: .notImplemented,
        code: "incremental-refused",
        title: "incremental forwarding not supported",
        detail:
            "This server receives each upload completely before it forwards it. Omit the Incremental field.",
        fields: [.proxyStatus: "spoolgate; error=incremental_refused"],
        isOrdinary: true
    )
}

// MARK: The request as the FastCGI listener received it

extension Refusal {
    /// 400: not a valid HTTP request; `reason` is a clause without bytes of the request.
    package static func malformed(reason: String) -> Refusal {
        Refusal(
            status: .badRequest,
            code: "malformed-request",
            title: "malformed request",
            detail: "This request is malformed: \(reason).",
            isOrdinary: true
        )
    }

    /// 431: there are more than `limit` field lines.
    package static func tooManyFields(limit: Int) -> Refusal {
        Refusal(
            status: .requestHeaderFieldsTooLarge,
            code: "too-many-fields",
            title: "too many fields",
            detail: "A request may have at most \(limit) field lines.",
            isOrdinary: true
        )
    }

    /// 431: the names and values exceed `limit` bytes in total.
    package static func fieldsTooLarge(limit: Int) -> Refusal {
        Refusal(
            status: .requestHeaderFieldsTooLarge,
            code: "fields-too-large",
            title: "fields too large",
            detail: "The fields of a request may have at most \(limit) bytes in total.",
            isOrdinary: true
        )
    }

    /// 414: the request target exceeds `limit` bytes.
    package static func targetTooLong(limit: Int) -> Refusal {
        Refusal(
            status: .uriTooLong,
            code: "target-too-long",
            title: "request target too long",
            detail: "A request target may have at most \(limit) bytes.",
            isOrdinary: true
        )
    }

    /// 500: the web server's configuration is wrong; `detail` tells the operator what to change.
    package static func webServerMisconfigured(_ detail: String) -> Refusal {
        Refusal(
            status: .internalServerError,
            code: "front-misconfigured",
            title: "web server misconfigured",
            detail: detail,
            isOrdinary: true
        )
    }

    /// 500: the web server names an unknown route, or none (`name` is nil) although there is no default route.
    package static func unknownRoute(name: String?) -> Refusal {
        let what =
            name.map { "the route \"\($0)\", which is not in the settings" }
            ?? "no route, and the settings have no default route"
        return Refusal(
            status: .internalServerError,
            code: "unknown-route",
            title: "unknown route",
            detail: "The web server passed \(what).",
            isOrdinary: true
        )
    }
}

private let locked = HTTPResponse.Status(code: 423, reasonPhrase: "Locked")
let insufficientStorage = HTTPResponse.Status(
    code: 507,
    reasonPhrase: "Insufficient Storage"
)
