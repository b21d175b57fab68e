// The gateway's own responses for a directory or a bucket, which do not speak HTTP with clients.

import HTTPTypes
import SpoolgateTextFormats
import SpoolgateUploadProtocol

extension Response {
    /// The response 201 for a stored upload, with a JSON object of its ID, file name and length.
    static func stored(_ upload: UploadID, name: String, length: Int64) -> Response {
        let response = JSON.object([
            ("id", .string("\(upload)")), ("name", .string(name)), ("length", .integer(length)),
        ])
        return Response(
            ResponseHead(status: .created, fields: [.contentType: "application/json"]),
            content: Array((response.text + "\n").utf8)
        )
    }

    /// The response 405 to a request that is not an upload.
    static let onlyUploads = Response(
        ResponseHead(
            status: .methodNotAllowed,
            fields: [
                .allow: "POST, PUT, PATCH", .contentType: "application/problem+json",
            ]
        ),
        content: Array(
            (JSON.object([
                ("title", .string("Only uploads are accepted")), ("status", .integer(405)),
                ("detail", .string("Send content with POST, PUT or PATCH.")),
            ]).text + "\n").utf8
        )
    )

    /// Passes the response to `sink`; if that fails, the outcome's reason begins with `purpose`.
    func give(
        to sink: any ResponseSink,
        respondingTo request: UpstreamRequest,
        purpose: String
    ) -> AttemptOutcome {
        do {
            try sink.receive(head: head, contentLength: Int64(content.count))
            if request.method != .head { try sink.receive(content: content.span.bytes) }
            return .responded
        } catch {
            return .undelivered(reason: "\(purpose): cannot relay the response: \(error)")
        }
    }
}
