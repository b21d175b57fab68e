// An upload operation, with the upload's own limits, journal and protocol.

import HTTPTypes
import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol

/// One request's operation on one upload that the request has locked; used by the request's thread.
final class UploadOperation: Answering {
    let request: Request
    let upload: Upload
    let isCreation: Bool
    let route: Route
    let journal: Journal
    let responses: any ResponseWording

    init(_ request: Request, _ upload: Upload, isCreation: Bool = false) {
        self.request = request
        self.upload = upload
        self.isCreation = isCreation
        journal = request.gateway.deliveries.journal.of(upload.creation)
        var responses: any ResponseWording
        (route, responses) = request.limited(request.responses, to: upload.creation.maxSize)
        if request.isUnmarked, upload.creation.kind.family == .tus {
            responses = request.gateway.responses(to: request.head, .tus, on: route)
        }
        // Other dialects do not use the creation.
        self.responses =
            responses.dialect.repeatsAfterError ? responses.on(upload.creation.head) : responses
    }

    var head: RequestHead { request.head }
    var offset: Int64 { upload.offset }
    /// The upload resource's URI in a creation; otherwise nil.
    var locationOfCreation: String? {
        isCreation ? request.location(upload.creation.resourcePath) : nil
    }

    /// The progress report; nil if the client cannot receive reports or the creation has no content
    /// (`Dialect.allowsInterim(toCreationOf:)`).
    var progressReport: ProgressReport? {
        guard !isCreation || head.contentLength != .known(0) else { return nil }
        return ProgressReport(to: exchange, request.context, responses)
    }

    /// Makes the offset durable, then refuses the request; the response may state the offset.
    func refuseDurably(_ refusal: Refusal) throws(SpoolError) {
        try upload.sync()
        refuse(refusal, offset: offset)
    }
}
