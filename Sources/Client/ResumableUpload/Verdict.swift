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
    case asked
}

enum Verdict: Equatable {
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

    /// Creates the value for the response `answer` to the request `step`, from the table below.
    init(
        of answer: UploadAnswer,
        to step: Step,
        by method: HTTPRequest.Method,
        repeating: Repeating = .unsafe
    ) {
        if (300..<400).contains(answer.status) {
            self = Self.redirection(answer, step, method)
            return
        }
        // An upload cannot be complete before all of its content is sent.
        if answer.isComplete == true, answer.status < 400, !step.endsBody, step != .retrieval,
            step != .cancellation
        {
            self = .unsupported
            return
        }
        self =
            switch step {
            case .plain: Self.plain(answer, repeating)
            case .carefulCreation: Self.creation(answer)
            case .optimisticCreation(let isComplete):
                Self.content(answer, isComplete, hasResource: false, repeating)
            case .append(let isComplete):
                Self.content(answer, isComplete, hasResource: true, repeating)
            case .retrieval: Self.retrieval(answer)
            case .cancellation: Self.cancellation(answer)
            }
    }

    /// Applications respond to a form with 302 or 303 (RFC 9110 §15.4.3, §15.4.4).
    ///
    /// A 303 in response to a method other than POST means that the request was carried out, but a web server's
    /// `return 303` looks the same, so a 303 counts only as the final response of a complete upload. The other
    /// redirects ask for the same request at another URL.
    private static func redirection(
        _ answer: UploadAnswer,
        _ step: Step,
        _ method: HTTPRequest.Method
    ) -> Verdict {
        guard step.endsBody, answer.location?.isEmpty == false, answer.isComplete != false else {
            return .redirected
        }
        let isTarget = answer.isComplete == true
        // Without `Upload-Complete: ?1`, a redirect of an append is not from the application.
        if case .append = step, !isTarget { return .redirected }
        switch answer.status {
        case 303 where method == .post || isTarget: return .final
        case 302 where method == .post: return .final
        default: return .redirected
        }
    }

    private static func plain(_ answer: UploadAnswer, _ repeating: Repeating) -> Verdict {
        switch answer.status {
        // The server has done nothing (RFC 6585 §4, RFC 9110 §15.6.4).
        case 429, 503: .later
        // These 4xx statuses mean the same (RFC 9110 §15.5.9, RFC 8470 §5.2, RFC 4918 §11.3).
        case 408, 423, 425: .later
        case let status where isPassing(status) && repeating == .asked: .later
        case 502, 504: repeating == .unsafe ? .final : .later
        // Any other response is from the application.
        default: .final
        }
    }

    private static func creation(_ answer: UploadAnswer) -> Verdict {
        if answer.isComplete == true { return .final }
        switch answer.status {
        case 200..<300:
            return answer.location != nil && answer.knowsUploads ? .acknowledged(0) : .unsupported
        case 400, 412: return .unknownVersion
        case let status where isPassing(status): return .later
        default: return .refused
        }
    }

    private static func content(
        _ answer: UploadAnswer,
        _ isComplete: Bool,
        hasResource: Bool,
        _ repeating: Repeating
    ) -> Verdict {
        if answer.isComplete == true { return .final }
        switch answer.status {
        case 200..<300:
            // A login page of the network or a proxy may have responded.
            if hasResource, !answer.knowsUploads { return .unconfirmed }
            guard isComplete else { return .acknowledged(answer.offset) }
            // Some servers omit `Upload-Complete`; `?0` means that the upload is not complete.
            return answer.isComplete == nil ? .final : .later
        case 404 where hasResource, 410 where hasResource: return .gone
        case 409 where hasResource: return .conflict(answer.offset)
        case 400, 412:
            // A server that supports the version sends upload fields.
            if !hasResource, !answer.knowsUploads { return .unknownVersion }
            return hasResource || answer.isComplete != nil ? .refused : .final
        case 413 where answer.maxAppend != nil: return .tooLarge
        // This 413 is from a proxy, because an upload server sends upload fields.
        case 413 where hasResource && !answer.knowsUploads: return .tooLarge
        case 429, 503: return .later
        case 502 where repeating != .unsafe, 504 where repeating != .unsafe: return .later
        case let status where isPassing(status): return hasResource ? .later : .final
        default: return hasResource || answer.isComplete != nil ? .refused : .final
        }
    }

    private static func retrieval(_ answer: UploadAnswer) -> Verdict {
        switch answer.status {
        case 200..<300: return answer.offset.map { .acknowledged($0) } ?? .unconfirmed
        case _ where answer.isComplete == true: return .final
        case 404, 410: return .gone
        case let status where isPassing(status): return .later
        default: return .refused
        }
    }

    private static func cancellation(_ answer: UploadAnswer) -> Verdict {
        switch answer.status {
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
