// The receiver of a delivery's final response, and the form in which it receives it.

package import HTTPTypes
package import SpoolgateExchange
import SpoolgateSpool
package import SpoolgateUploadProtocol

/// The receiver of the final response of a delivery.
package struct ResponseListener {
    /// The request that waits for the final response; nil: the response is only stored.
    package var exchange: (any Exchange)?
    /// Builds the responses for that request.
    let responses: any ResponseWording
    /// The URI of the upload resource, if the request is the creation.
    package var location: String?
    /// Sends heartbeats during the wait; nil if the client cannot receive them.
    package var heartbeat: Heartbeat?
    /// The fields of the request that completes the upload; nil if no request does.
    let completing: HTTPFields?
    /// Whether a client waits to learn that there is no final response yet, although the response is only stored.
    package var isWitnessed = false
    /// Whether the client knows the upload resource and resumes after a lost connection.
    package var isResumable = false
    /// Whether the client sent the whole upload in this request.
    package var hasSentAll = false
    /// Whether the client did not use the upload protocol.
    private let isOrdinary: Bool

    /// Creates a listener without a request: the final response is only stored.
    package init(
        _ responses: any ResponseWording,
        completing: HTTPFields?,
        isOrdinary: Bool = false
    ) {
        self.responses = responses
        self.completing = completing
        self.isOrdinary = isOrdinary
    }

    /// The head of the final response as its client receives it.
    func final(_ head: ResponseHead, of upload: Upload) -> FinalHead {
        isOrdinary
            ? .ordinary(head)
            : responses.final(head, offset: upload.offset, location: location)
    }

    /// The same listener without a request.
    var unheard: ResponseListener { ResponseListener(responses, completing: completing) }

    /// Whether a client can still receive a response.
    var isThere: Bool { exchange.map { !$0.isPeerGone } ?? isWitnessed }

    /// The client's knowledge; `isAccepted`: whether it received 202.
    func knowledge(isAccepted: Bool) -> ClientKnowledge {
        if isAccepted { return .accepted }
        guard let exchange, !exchange.isPeerGone else { return .gone }
        return hasSentAll ? isResumable ? .all : .message : .resource
    }
}
