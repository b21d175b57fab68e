// The receiver of a delivery's final response.

package import HTTPTypes
package import SpoolgateExchange
import SpoolgateSpool
package import SpoolgateUploadProtocol

/// The receiver of a final response, and the form of the response.
package struct ResponseListener {
    /// The waiting request; nil if the response is only stored.
    package var exchange: (any Exchange)?
    let responses: any ResponseWording
    /// The URI of the upload resource; nil unless the request is the creation.
    package var location: String?
    /// The sender of heartbeats; nil if the client cannot receive them.
    package var heartbeat: Heartbeat?
    /// The fields of the request that completed the upload, if any, with the credentials of the attempt.
    var completing: HTTPFields?
    /// The request that waits for the result, although the final response is only stored; nil if none does.
    package var witness: (any Exchange)?
    /// Whether the client can resume after a lost connection.
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

    /// `isSuccess` is true if the upstream has accepted the upload.
    func final(_ head: ResponseHead, of upload: Upload, isSuccess: Bool) -> FinalHead {
        isOrdinary
            ? .ordinary(head)
            : responses.final(
                head,
                isSuccess: isSuccess,
                offset: upload.offset,
                location: location
            )
    }

    /// A copy that only stores the response.
    var unheard: ResponseListener { ResponseListener(responses, completing: completing) }

    var isThere: Bool { (exchange ?? witness).map { !$0.isPeerGone } ?? false }

    /// What the client can still do.
    ///
    /// `isAccepted` is true if the client received 202 for the upload.
    func knowledge(isAccepted: Bool) -> ClientKnowledge {
        if isAccepted { return .accepted }
        guard isThere else { return .gone }
        if hasSentAll { return isResumable ? .all : .message }
        if responses.dialect.family == .tus { return .tus }
        return responses.dialect.takesOffsetForSuccess ? .eager : .resource
    }
}
