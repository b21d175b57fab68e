// The refusals of a gateway without capacity.
//
// Refusals that only mean "later" have `isOnlyLater` and are never sent for an existing upload
// (Requests/Request.swift).

import HTTPTypes

extension Refusal {
    /// 503: another request has locked this upload and did not release it in time.
    package static let uploadInUse = Refusal(
        status: .serviceUnavailable,
        code: "upload-in-use",
        title: "upload in use",
        detail: "Another request is using this upload. Try again in a moment.",
        retryAfter: 2,
        isOnlyLater: true
    )

    /// 503: the upload is on another node, to which the web server should have sent the request.
    package static let otherNode = Refusal(
        status: .serviceUnavailable,
        code: "other-node",
        title: "upload on another node",
        detail: "This upload is stored on another node of this service. Try again in a moment.",
        retryAfter: 5,
        isOnlyLater: true
    )

    /// 503: all threads for requests are in use.
    package static let busy = Refusal(
        status: .serviceUnavailable,
        code: "too-many-requests",
        title: "too many concurrent requests",
        detail: "The server has reached its limit of concurrent requests. Try again in a moment.",
        retryAfter: 5,
        isOnlyLater: true
    )

    /// 503: too many requests are waiting for a final response, an authorizer or another request.
    package static let tooManyWait = Refusal(
        status: .serviceUnavailable,
        code: "too-many-waiting",
        title: "too many waiting requests",
        detail: "Too many requests are waiting on this server. Try again in a moment.",
        retryAfter: 5,
        isOnlyLater: true
    )

    package static let clientBusy = Refusal(
        status: .tooManyRequests,
        code: "client-too-many-requests",
        title: "too many concurrent requests from one client",
        detail: "This client has too many concurrent requests. Wait until some of them have ended.",
        retryAfter: 5,
        isOnlyLater: true
    )

    package static let clientWaits = Refusal(
        status: .tooManyRequests,
        code: "client-too-many-waiting",
        title: "too many waiting requests from one client",
        detail:
            "Too many requests from this client are waiting. Wait until some of them have ended.",
        retryAfter: 5,
        isOnlyLater: true
    )

    package static let clientHasUploads = Refusal(
        status: .tooManyRequests,
        code: "client-too-many-uploads",
        title: "too many uploads from one client",
        detail:
            "This client has too many unfinished uploads. Complete or cancel some of them first.",
        retryAfter: 60
    )

    package static let tooManyUploads = Refusal(
        status: insufficientStorage,
        code: "too-many-uploads",
        title: "too many uploads",
        detail: "The server stores too many uploads to accept another one. Try again later.",
        retryAfter: 60
    )

    package static let draining = Refusal(
        status: .serviceUnavailable,
        code: "draining",
        title: "shutting down",
        detail: "The server is restarting. Try again in a moment.",
        retryAfter: 5
    )

    package static let noDescriptor = Refusal(
        status: .serviceUnavailable,
        code: "out-of-descriptors",
        title: "too many open files",
        detail:
            "The server has reached its limit of open files. Received content is kept. Try again in a moment.",
        retryAfter: 5,
        isOnlyLater: true
    )

    /// 507: the file system has too little free space, or the spool has reached its quota.
    package static let spoolFull = Refusal(
        status: insufficientStorage,
        code: "spool-full",
        title: "spool full",
        detail:
            "The server has no space for this content. Content received before is kept. Try again later.",
        retryAfter: 60
    )

    package static let spoolFailed = Refusal(
        status: .internalServerError,
        code: "spool-failed",
        title: "spool failed",
        detail: "The server could not store or read this upload. The server's log has the cause.",
        retryAfter: 30
    )

    /// 408: no content arrived for `seconds`.
    package static func stalled(seconds: Int64) -> Refusal {
        Refusal(
            status: .requestTimeout,
            code: "content-stalled",
            title: "content stalled",
            detail:
                "No content was received for \(seconds) seconds. A resumable upload can be resumed later."
        )
    }

    /// 400: the connection or the framing ended before the content was complete.
    package static let truncated = Refusal(
        status: .badRequest,
        code: "content-truncated",
        title: "content truncated",
        detail:
            "The content ended before its announced length. A resumable upload can be resumed later."
    )
}
