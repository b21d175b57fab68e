// What a response means for an upload: the one table.
//
// Pure. A response that says "complete" is the target's own and final (draft-12 §4.1.2). The invariants: each response
// has one row, and only rows named `later` are tried again unchanged; `final` with a status below 400 answers a request
// that ended the body.

import HTTPTypes

/// What was asked.
enum Step: Equatable {
    /// An ordinary request with the whole body.
    case plain
    /// An empty creation.
    case carefulCreation
    /// A creation with content, that completes the upload or not.
    case optimisticCreation(isComplete: Bool)
    /// An append, that completes the upload or not.
    case append(isComplete: Bool)
    /// An offset retrieval.
    case retrieval
    /// A cancellation.
    case cancellation

    /// Whether the body ends with it.
    var endsBody: Bool {
        switch self {
        case .plain: true
        case .optimisticCreation(let isComplete), .append(let isComplete): isComplete
        case .carefulCreation, .retrieval, .cancellation: false
        }
    }
}

/// What is known of sending everything once more after a response.
enum Repeating {
    /// The server may take it twice.
    case unsafe
    /// The method, or an `Idempotency-Key`, makes it safe.
    case safe
    /// It is safe, or the server says that it took nothing, and the server asks for it.
    case asked
}

/// What a response means.
enum Verdict: Equatable {
    /// It is the final response, whatever its status.
    case final
    /// The server has the bytes up to its offset; nil: all that were sent.
    case acknowledged(Int64?)
    /// The server has another offset; nil: it has to be asked.
    case conflict(Int64?)
    /// The upload resource is there no more.
    case gone
    /// So much content in one request is too much.
    case tooLarge
    /// Try again later.
    case later
    /// The version may not be known there.
    case unknownVersion
    /// It took the request and knows no resumable uploads, or says that it has a body that is not all sent.
    case unsupported
    /// A success that says nothing of an upload: the upload resource has to be asked.
    case unconfirmed
    /// It names another place, and nothing shows that the upload was taken here.
    case redirected
    /// No, for good.
    case refused

    /// The row of `answer` to `step` of an upload by `method`.
    ///
    /// - Parameters:
    ///   - answer: the response.
    ///   - step: the request.
    ///   - method: the method of the upload.
    ///   - repeating: what is known of sending everything once more; only for a request with the whole body.
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
        // What is not all sent cannot be taken.
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

    /// The row of a redirect.
    ///
    /// 302 and 303 to a POST are how applications answer a form (RFC 9110 §15.4.3, §15.4.4). 303 to another method says
    /// that the request was carried out, but a web server's `return 303` looks the same: only the final response of an
    /// upload that is complete is believed. The others ask for the same request at another place.
    private static func redirection(
        _ answer: UploadAnswer,
        _ step: Step,
        _ method: HTTPRequest.Method
    ) -> Verdict {
        guard step.endsBody, answer.location?.isEmpty == false, answer.isComplete != false else {
            return .redirected
        }
        let isTarget = answer.isComplete == true
        // The protocol's own requests are not the target's.
        if case .append = step, !isTarget { return .redirected }
        switch answer.status {
        case 303 where method == .post || isTarget: return .final
        case 302 where method == .post: return .final
        default: return .redirected
        }
    }

    private static func plain(_ answer: UploadAnswer, _ repeating: Repeating) -> Verdict {
        switch answer.status {
        // These say that nothing was done (RFC 6585 §4, RFC 9110 §15.6.4).
        case 429, 503: .later
        // 4xx: nothing was done either (RFC 9110 §15.5.9, RFC 8470 §5.2, RFC 4918 §11.3).
        case 408, 423, 425: .later
        // The server of an ordinary request that asks for a later one has kept nothing of it.
        case let status where isPassing(status) && repeating == .asked: .later
        case 502, 504: repeating == .unsafe ? .final : .later
        // Whatever else is the target's word.
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
            // A login page of the network, or a proxy, may have answered.
            if hasResource, !answer.knowsUploads { return .unconfirmed }
            guard isComplete else { return .acknowledged(answer.offset) }
            // Some servers do not say whose answer it is; a "no" means that the upload is not over.
            return answer.isComplete == nil ? .final : .later
        case 404 where hasResource, 410 where hasResource: return .gone
        case 409 where hasResource: return .conflict(answer.offset)
        case 400, 412:
            // A server that knows the version says how far the upload is.
            if !hasResource, !answer.knowsUploads { return .unknownVersion }
            return hasResource || answer.isComplete != nil ? .refused : .final
        case 413 where answer.maxAppend != nil: return .tooLarge
        // A proxy's: a server of uploads says something of the upload.
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

    /// Statuses of what passes: a lock, a limit of the rate, trouble of the server (draft-12 §4.7).
    private static func isPassing(_ status: Int) -> Bool {
        switch status {
        case 408, 423, 425, 429: true
        case 501, 505: false
        default: (500..<600).contains(status)
        }
    }
}
