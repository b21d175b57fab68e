// What a directory or a bucket answers: it has the upload, or it takes no other requests.
//
// They store files and speak no HTTP with clients; the answers are made here, alike for both.

import HTTPTypes
import SpoolgateTextFormats
import SpoolgateUploadProtocol

extension Response {
    /// 201: the upload is stored; a JSON object of its identity, its file name and its bytes.
    static func stored(_ upload: UploadID, name: String, length: Int64) -> Response {
        let answer = JSON.object([
            ("id", .string("\(upload)")), ("name", .string(name)), ("length", .integer(length)),
        ])
        return Response(
            ResponseHead(status: .created, fields: [.contentType: "application/json"]),
            content: Array((answer.text + "\n").utf8)
        )
    }

    /// 405: a request that is no upload.
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

    /// Gives it to `sink` as the answer to `request`; `purpose` begins the reason where it is not taken.
    func give(
        to sink: any ResponseSink,
        answering request: UpstreamRequest,
        purpose: String
    ) -> AttemptOutcome {
        do {
            try sink.receive(head: head, contentLength: Int64(content.count))
            if request.method != .head { try sink.receive(content: content.span.bytes) }
            return .answered
        } catch {
            return .unheard(reason: "\(purpose): cannot relay the response: \(error)")
        }
    }
}
