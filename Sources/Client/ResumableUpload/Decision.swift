// The table that interprets each response to an upload's requests.
//
// Pure. A response with `Upload-Complete: ?1` is from the application and final (draft-12 §4.1.2). The invariants: each
// response has one row, and a request is repeated unchanged only after `later`; `final` with a status below 400 is the
// response to a request that ended the body.

import HTTPTypes

enum Step: Equatable {
    /// An ordinary request with the whole body.
    case plain
    case carefulCreation
    /// A creation with content.
    case optimisticCreation(isComplete: Bool)
    case append(isComplete: Bool)
    case retrieval
    case cancellation

    var endsBody: Bool {
        switch self {
        case .plain: true
        case .optimisticCreation(let isComplete), .append(let isComplete): isComplete
        case .carefulCreation, .retrieval, .cancellation: false
        }
    }
}

/// Whether a request with the whole body can be sent again.
enum Repeating {
    /// The server may accept the repeated request a second time.
    case unsafe
    /// The method or an `Idempotency-Key` makes a repetition safe.
    case safe
    /// The server requests a repetition, and repeating is safe or the server has stated that it kept nothing.
    case requested
}

enum Decision: Equatable {
    /// The final response, with any status.
    case final
    /// The server has the bytes up to this offset; nil for all bytes sent.
    case acknowledged(Int64?)
    /// The server has another offset; nil if it must be retrieved.
    case conflict(Int64?)
    case gone
    case tooLarge
    case later
    /// The server may not support the version.
    case unknownVersion
    /// The server does not support resumable uploads, or reports an incomplete body as complete.
    case unsupported
    /// A success without upload fields, which the upload resource must confirm.
    case unconfirmed
    /// A redirect; the upload is not known to be accepted.
    case redirected
    case refused

    /// Creates the value for the response `response` to the request `step`, from the table below.
    init(
        of response: ServerResponse,
        to step: Step,
        by method: HTTPRequest.Method,
        repeating: Repeating = .unsafe
    ) {
        if (300..<400).contains(response.status) {
            self = Self.redirection(response, step, method)
            return
        }
        // An upload cannot be complete before all of its content is sent.
        if response.isComplete == true, response.status < 400, !step.endsBody, step != .retrieval,
            step != .cancellation
        {
            self = .unsupported
            return
        }
        self =
            switch step {
            case .plain: Self.plain(response, repeating)
            case .carefulCreation: Self.creation(response)
            case .optimisticCreation(let isComplete):
                Self.content(response, isComplete, hasResource: false, repeating)
            case .append(let isComplete):
                Self.content(response, isComplete, hasResource: true, repeating)
            case .retrieval: Self.retrieval(response)
            case .cancellation: Self.cancellation(response)
            }
    }

    /// Applications respond to a form with 302 or 303 (RFC 9110 §15.4.3, §15.4.4).
    ///
    /// A 303 in response to a method other than POST means that the request was carried out, but a web server's
    /// `return 303` looks the same, so a 303 counts only as the final response of a complete upload. The other
    /// redirects ask for the same request at another URL.
    private static func redirection(
        _ response: ServerResponse,
        _ step: Step,
        _ method: HTTPRequest.Method
    ) -> Decision {
        guard step.endsBody, response.location?.isEmpty == false, response.isComplete != false
        else {
            return .redirected
        }
        let isTarget = response.isComplete == true
        // Without `Upload-Complete: ?1`, a redirect of an append is not from the application.
        if case .append = step, !isTarget { return .redirected }
        switch response.status {
        case 303 where method == .post || isTarget: return .final
        case 302 where method == .post: return .final
        default: return .redirected
        }
    }

    private static func plain(_ response: ServerResponse, _ repeating: Repeating) -> Decision {
        switch response.status {
        // The server has done nothing (RFC 6585 §4, RFC 9110 §15.6.4).
        case 429, 503: .later
        // These 4xx statuses mean the same (RFC 9110 §15.5.9, RFC 8470 §5.2, RFC 4918 §11.3).
        case 408, 423, 425: .later
        case let status where isPassing(status) && repeating == .requested: .later
        case 502, 504: repeating == .unsafe ? .final : .later
        // Any other response is from the application.
        default: .final
        }
    }

    private static func creation(_ response: ServerResponse) -> Decision {
        if response.isComplete == true { return .final }
        switch response.status {
        case 200..<300:
            return response.location != nil && response.knowsUploads
                ? .acknowledged(0) : .unsupported
        case 400, 412: return .unknownVersion
        case let status where isPassing(status): return .later
        default: return .refused
        }
    }

    private static func content(
        _ response: ServerResponse,
        _ isComplete: Bool,
        hasResource: Bool,
        _ repeating: Repeating
    ) -> Decision {
        if response.isComplete == true { return .final }
        switch response.status {
        case 200..<300:
            // A login page of the network or a proxy may have responded.
            if hasResource, !response.knowsUploads { return .unconfirmed }
            guard isComplete else { return .acknowledged(response.offset) }
            // Some servers omit `Upload-Complete`; `?0` means that the upload is not complete.
            return response.isComplete == nil ? .final : .later
        case 404 where hasResource, 410 where hasResource: return .gone
        case 409 where hasResource: return .conflict(response.offset)
        case 400, 412:
            // A server that supports the version sends upload fields.
            if !hasResource, !response.knowsUploads { return .unknownVersion }
            return hasResource || response.isComplete != nil ? .refused : .final
        case 413 where response.maxAppend != nil: return .tooLarge
        // This 413 is from a proxy, because an upload server sends upload fields.
        case 413 where hasResource && !response.knowsUploads: return .tooLarge
        case 429, 503: return .later
        case 502 where repeating != .unsafe, 504 where repeating != .unsafe: return .later
        case let status where isPassing(status): return hasResource ? .later : .final
        default: return hasResource || response.isComplete != nil ? .refused : .final
        }
    }

    private static func retrieval(_ response: ServerResponse) -> Decision {
        switch response.status {
        case 200..<300: return response.offset.map { .acknowledged($0) } ?? .unconfirmed
        case _ where response.isComplete == true: return .final
        case 404, 410: return .gone
        case let status where isPassing(status): return .later
        default: return .refused
        }
    }

    private static func cancellation(_ response: ServerResponse) -> Decision {
        switch response.status {
        case 204: return .final
        case 200..<300: return .unconfirmed
        case 404, 410: return .gone
        case let status where isPassing(status): return .later
        default: return .refused
        }
    }

    /// Whether a status is temporary: a lock, a rate limit or a server error (draft-12 §4.7).
    private static func isPassing(_ status: Int) -> Bool {
        switch status {
        case 408, 423, 425, 429: true
        case 501, 505: false
        default: (500..<600).contains(status)
        }
    }
}
