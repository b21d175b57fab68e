// Who waits for the final response of a delivery, and how it is told.

package import HTTPTypes
package import SpoolgateExchange
import SpoolgateSpool
package import SpoolgateUploadProtocol

/// Who hears the final response of a delivery, and how it is told.
package struct ResponseListener {
    /// The request that waits for it; nil: it is only stored.
    package var exchange: (any Exchange)?
    /// Builds what that request hears.
    let responses: any ResponseWording
    /// The upload resource's URI, where the request is the creation.
    package var location: String?
    /// Tells the client that the wait goes on; nil where it cannot hear that.
    package var heartbeat: Heartbeat?
    /// The fields of the request that completes the upload; nil if none does.
    let completing: HTTPFields?
    /// Whether some client hears, of a final response that is only stored, that there is none yet.
    package var isWitnessed = false
    /// Whether its client knows where the upload is, and comes back when its connection breaks.
    package var isResumable = false
    /// Whether its client has sent the whole upload in this message.
    package var hasSentAll = false
    /// Whether its client did not ask for the protocol's fields.
    private let isOrdinary: Bool

    /// Nobody: the final response is only stored.
    package init(
        _ responses: any ResponseWording,
        completing: HTTPFields?,
        isOrdinary: Bool = false
    ) {
        self.responses = responses
        self.completing = completing
        self.isOrdinary = isOrdinary
    }

    /// The final response as its client is told it.
    func final(_ head: ResponseHead, of upload: Upload) -> FinalHead {
        isOrdinary
            ? .ordinary(head)
            : responses.final(head, offset: upload.offset, location: location)
    }

    /// The same where nobody will hear anything.
    var unheard: ResponseListener { ResponseListener(responses, completing: completing) }

    /// Whether the client can still be told something.
    var isThere: Bool { exchange.map { !$0.isPeerGone } ?? isWitnessed }

    /// What the client knows; `isAccepted`: whether it was told 202.
    func knowledge(isAccepted: Bool) -> ClientKnowledge {
        if isAccepted { return .accepted }
        guard let exchange, !exchange.isPeerGone else { return .gone }
        return hasSentAll ? isResumable ? .all : .message : .resource
    }
}
