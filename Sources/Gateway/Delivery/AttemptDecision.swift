// The table of outcomes: who decided about an attempt, what was decided, and what follows for the upload and its
// client.
//
// Pure. A test generates the tables in ARCHITECTURE.md from this code, and walks every cell. The rules:
//
//  1. An upload is delivered at most once, unless repeating is safe.
//  2. Content is removed only if the upstream answered with success, or if the client is waiting and receives a final
//     refusal: the upstream's, the authorizer's, the inspection's, or that of a digest. After 202, no client waits.
//     (Other files remove content only for an operator, a cancellation, or the end of a documented lifetime.)
//  3. The client receives nothing of a response that is not final; the gateway responds itself, because a final
//     response must contain `Upload-Complete: ?1` (draft-12 §4.1.2).

import HTTPTypes
import SpoolgateSettings
import SpoolgateUpstream

/// What the upstream, or a check before the attempt, decided.
enum AttemptResult: String, CaseIterable {
    /// Includes redirects that are the application's own response.
    case accepted = "2xx, or a redirect that is its own answer"
    /// Any other error is final.
    case refused = "another 4xx or 5xx, or 304"
    /// The credentials are wrong or expired.
    case unauthorized = "401, or a redirect to a login"
    /// The application or a proxy in front of it sent the client away; it may have processed the request.
    case elsewhere = "301, 302 or 303 to another host"
    /// A redirect that requires the same request at another place.
    case redirect = "307 or 308 that is not followed"
    case busy = "429"
    /// A server in front of the application responded, or the application cannot serve the request now.
    case notNow = "408, 423, 502, 503, 504, 507, 511"
    /// Nothing was processed, by the status's definition or by the route's `not-processed`.
    case notProcessed = "425, or a status in `not-processed`"
    /// No target was reached, a proxy did not pass the request on, or a full or busy store refused it.
    case unsent = "not sent, or not processed"
    case noResponse = "sent, no complete response"
    /// The authorizer wants other credentials; its redirect leads to a login, because an authorizer never delivers.
    case notAuthorized = "401, a redirect, or another owner"
    case notPermitted = "another 4xx"
    case notPassed = "refused"
    case contradicted = "the content contradicts the client's digest"
    /// The check is repeated at the next attempt.
    case unchecked = "no result: no response, 408, 429, 5xx, a failed command"

    /// Reads the status of the upstream's response; `redirect` is nil if the response is no redirect.
    ///
    /// 429 counts as "not processed" by assumption, because no standard says so.
    init(
        _ status: HTTPResponse.Status,
        _ redirect: Redirection?,
        method: HTTPRequest.Method,
        notProcessed: [Int]
    ) {
        switch (status.code, redirect?.kind) {
        case (401, _), (_, .login): self = .unauthorized
        case (let code, _) where notProcessed.contains(code): self = .notProcessed
        case (425, _): self = .notProcessed
        case (429, _): self = .busy
        case (408, _), (423, _), (502...504, _), (507, _), (511, _): self = .notNow
        case (301...303, .response) where redirect?.isListed == true: self = .accepted
        case (307, _), (308, _): self = .redirect
        case (_, .response) where !Redirection.repeatsRequest(status: status.code, method: method):
            self = .accepted
        // The method's content is to be sent again, and the gateway has not followed.
        case (_, .response): self = .redirect
        case (_, .elsewhere): self = .elsewhere
        case (..<300, _): self = .accepted
        default: self = .refused
        }
    }
}

/// What the client can still do when the attempt ends.
enum ClientKnowledge: String, CaseIterable {
    /// The client knows no upload resource, so it cannot resume.
    case message = "waits, sent everything in one request, knows no upload resource"
    /// The client waits, sent the whole content in this request, and can resume.
    case all = "waits, sent everything in one request"
    case resource = "waits, sent parts"
    /// The request is an append or an offset retrieval.
    case tus = "waits, by tus"
    /// The request is an append or an offset retrieval of a client that takes offset == length for success.
    case eager = "waits, by versions 5 and 6"
    /// The client may also only retrieve the offset.
    case gone = "has disconnected"
    /// The client does not wait.
    case accepted = "received 202"

    /// Whether the client receives the result of the attempt.
    var waits: Bool { self != .gone && self != .accepted }
}

/// The consequence of an attempt for its upload.
///
/// `?1` and `?0` are the values of `Upload-Complete` in the response to the client.
enum AttemptDecision: String, CaseIterable {
    /// The response is final: it is stored and sent with `Upload-Complete: ?1`, and the content is removed.
    case delivered
    /// Like `delivered`, but the response is a refusal, which the client is waiting for.
    case refused
    /// The response is stored, and sent with `Upload-Complete: ?1` if a client waits; the content moves to the queue
    /// `hold` as `failed`.
    case failed
    /// Like `failed`, but the cause in `hold` is `indeterminate`, because the application may have accepted the upload.
    ///
    /// If `hold` is full and the client waits, like `refused`.
    case heldWithResponse = "response, held"
    /// The client receives 502 or 504 with `?1`; the content moves to `hold` as `indeterminate`.
    case held
    /// A waiting client, which receives `?0`, makes the next attempt; if no client waits, the queue does.
    case deferred
    /// Only the client can continue, with other credentials, until `queue.lifetime` ends.
    ///
    /// A waiting client receives `?0`.
    case deferredForClient = "deferred for its client"

    /// `isRepeatable` is true if the upload may be sent again although the application may have received it.
    init(after result: AttemptResult, isRepeatable: Bool, _ client: ClientKnowledge) {
        let refused: AttemptDecision = client.waits ? .refused : .failed
        let uncertain: AttemptDecision = client == .accepted ? .failed : .heldWithResponse
        let unauthorized: AttemptDecision =
            client == .message ? .refused : client == .accepted ? .failed : .deferredForClient
        self =
            switch result {
            case .accepted: .delivered
            case .refused, .notPermitted, .notPassed, .contradicted: refused
            case .unauthorized, .notAuthorized: unauthorized
            case .elsewhere: isRepeatable ? unauthorized : uncertain
            // A client without an upload resource could not repeat the request.
            case .busy: client == .message ? .refused : .deferred
            case .notNow: isRepeatable ? .deferred : uncertain
            case .notProcessed, .unsent, .unchecked: .deferred
            // A client that still has all content can follow the redirect.
            case .redirect: client == .message || client == .all ? .refused : .deferred
            case .noResponse: isRepeatable ? .deferred : .held
            }
    }

    /// Whether the upstream's response is final.
    var isFinal: Bool {
        switch self {
        case .delivered, .refused, .failed, .heldWithResponse: true
        case .held, .deferred, .deferredForClient: false
        }
    }

    /// Whether the content is removed.
    var removesContent: Bool { self == .delivered || self == .refused }
}
