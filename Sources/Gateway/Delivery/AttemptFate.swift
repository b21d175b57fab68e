// The table of outcomes: how an attempt ended, and what that means for the upload and for its client.
//
// Pure. ARCHITECTURE.md shows the table, and a test makes it from here. The promise behind it: an upload is
// delivered at most once, unless repeating is safe; and no content is given up that its client, the queue or an
// operator could still have delivered. Invariant: of a response that is not final the client hears nothing; the
// gateway answers by itself, for the draft wants a final response to say `Upload-Complete: ?1` (draft-12 §4.1.2).

import HTTPTypes
import SpoolgateSettings
import SpoolgateUpstream

/// How an attempt ended, as far as it decides on the upload.
enum AttemptResult: String, CaseIterable {
    /// A status below 400, redirects that are the application's answer among them.
    case taken = "below 400"
    /// 400 or above, but for those that follow.
    case refused = "400 or above"
    /// 401: the credentials are not those, or no longer.
    case unauthorized = "401"
    /// 429: too many requests.
    case busy = "429"
    /// 502, 503 or 504: a server in front of the application answers for it, or the application is stopping.
    case gatewayError = "502, 503, 504"
    /// The same, if the route says that such a status means that nothing was processed.
    case notProcessed = "502, 503 in `not-processed`"
    /// A redirect that asks for the same request elsewhere, where the gateway does not follow.
    case redirect = "a redirect that is not followed"
    /// Not sent to any target, or not passed on, or refused by a store that has no room or no time now.
    case unsent = "not sent, or not processed"
    /// Sent, and no whole response came.
    case unanswered = "sent, no complete response"

    /// Reads a final response.
    init(_ status: HTTPResponse.Status, method: HTTPRequest.Method, notProcessed: [Int]) {
        switch status.code {
        case 401: self = .unauthorized
        case 429: self = .busy
        case let code where notProcessed.contains(code): self = .notProcessed
        case 502, 503, 504: self = .gatewayError
        case let code where Redirection.repeatsRequest(status: code, method: method):
            self = .redirect
        case ..<400: self = .taken
        default: self = .refused
        }
    }
}

/// What the client of an upload knows when its attempt ends.
enum ClientKnowledge: String, CaseIterable {
    /// It waits, has sent everything in this message, and was told no upload resource.
    case message = "waits, sent everything in one request, knows no upload resource"
    /// It waits, has sent everything in this message, and could come back.
    case all = "waits, sent everything in one request"
    /// It waits, and has sent a part of the content in this message.
    case resource = "waits, sent parts"
    /// It is gone, or only asks how far the upload is.
    case gone = "has disconnected"
    /// It was told 202, and waits for nothing.
    case accepted = "received 202"
}

/// What becomes of an upload after an attempt.
enum AttemptFate: String, CaseIterable {
    /// The response is the final one: stored, told with `?1`; the content is removed.
    case delivered
    /// The response is stored, and told with `?1` if somebody waits; the content goes to `hold` as `failed`.
    case failed
    /// The same, as `indeterminate`: the application may have taken it. Without room in `hold`, `delivered`.
    case heldWithResponse = "response, held"
    /// 502 or 504 with `?1`; the content goes to `hold` as `indeterminate`.
    case held
    /// A client that waits hears `?0` and tries again; for all others the queue does.
    case deferred
    /// A client that waits hears `?0`. Only the client can go on, with other credentials, until `queue.lifetime` ends.
    case deferredForClient = "deferred for its client"

    /// The cell of the table.
    init(after result: AttemptResult, isRepeatable: Bool, _ client: ClientKnowledge) {
        let refused: AttemptFate = client == .accepted ? .failed : .delivered
        self =
            switch result {
            case .taken: .delivered
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

    /// Whether the response is the final one, which is stored and told.
    var tellsResponse: Bool {
        switch self {
        case .delivered, .failed, .heldWithResponse: true
        case .held, .deferred, .deferredForClient: false
        }
    }
}
