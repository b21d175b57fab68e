// The table of outcomes: how an attempt ended, and what follows for the upload and its client.
//
// Pure. A test generates the table in ARCHITECTURE.md from this code. An upload is delivered at most once, unless
// repeating is safe, and no content is deleted that its client, the queue or an operator could still have delivered.
// Invariant: the client receives nothing of a response that is not final; the gateway responds itself, because a final
// response must contain `Upload-Complete: ?1` (draft-12 §4.1.2).

import HTTPTypes
import SpoolgateSettings
import SpoolgateUpstream

enum AttemptResult: String, CaseIterable {
    /// Includes redirects that are the application's own response.
    case accepted = "below 400"
    /// 400 or above, except for the cases below.
    case refused = "400 or above"
    /// The credentials are wrong or expired.
    case unauthorized = "401"
    case busy = "429"
    /// A server in front of the application responded, or the application is stopping.
    case gatewayError = "502, 503, 504"
    /// The route's `not-processed` lists the status as proof that nothing was processed.
    case notProcessed = "502, 503 in `not-processed`"
    /// A redirect that requires the same request at another place.
    case redirect = "a redirect that is not followed"
    /// No target was reached, a proxy did not pass the request on, or a full or busy store refused it.
    case unsent = "not sent, or not processed"
    case unanswered = "sent, no complete response"

    init(_ status: HTTPResponse.Status, method: HTTPRequest.Method, notProcessed: [Int]) {
        switch status.code {
        case 401: self = .unauthorized
        case 429: self = .busy
        case let code where notProcessed.contains(code): self = .notProcessed
        case 502, 503, 504: self = .gatewayError
        case let code where Redirection.repeatsRequest(status: code, method: method):
            self = .redirect
        case ..<400: self = .accepted
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
    /// The client may also only retrieve the offset.
    case gone = "has disconnected"
    /// The client does not wait.
    case accepted = "received 202"
}

/// The consequence of an attempt for its upload.
///
/// `?1` and `?0` are the values of `Upload-Complete` in the response to the client.
enum AttemptFate: String, CaseIterable {
    /// The response is final: it is stored and sent with `Upload-Complete: ?1`, and the content is removed.
    case delivered
    /// The response is stored, and sent with `Upload-Complete: ?1` if a client waits; the content moves to the queue
    /// `hold` as `failed`.
    case failed
    /// Like `failed`, but the cause in `hold` is `indeterminate`, because the application may have accepted the upload.
    ///
    /// If `hold` is full, like `delivered`.
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
        let refused: AttemptFate = client == .accepted ? .failed : .delivered
        self =
            switch result {
            case .accepted: .delivered
            case .refused: refused
            case .unauthorized:
                switch client {
                case .message: .delivered
                case .accepted: .failed
                case .all, .resource, .gone: .deferredForClient
                }
            case .busy: isRepeatable ? .deferred : refused
            case .gatewayError:
                isRepeatable ? .deferred : client == .accepted ? .failed : .heldWithResponse
            case .notProcessed, .unsent: .deferred
            case .redirect: client == .message || client == .all ? .delivered : .deferred
            case .unanswered: isRepeatable ? .deferred : .held
            }
    }

    /// Whether the upstream's response is final.
    var tellsResponse: Bool {
        switch self {
        case .delivered, .failed, .heldWithResponse: true
        case .held, .deferred, .deferredForClient: false
        }
    }
}
