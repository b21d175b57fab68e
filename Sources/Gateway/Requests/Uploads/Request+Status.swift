// The status resource: an upload's state as JSON.

import HTTPTypes
import SpoolgateExchange
import SpoolgatePosix
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

extension Request {
    /// Responds with the upload's state, without locking or changing the upload.
    func reportStatus(of id: UploadID) {
        do throws(SpoolError) {
            guard let summary = try gateway.spool.look(at: id), let creation = summary.creation,
                isOurs(creation)
            else { return refuse(.unknownUpload) }
            exchange.respond(
                Response(
                    .ok,
                    json: .object([
                        ("upload", .string(id.description)),
                        ("state", .string(summary.stateWord)),
                        ("offset", .integer(summary.offset)),
                        ("length", .integer(summary.length)),
                        ("created", .string(creation.created.description)),
                        ("attempts", .integer(summary.attempts)),
                        ("next-attempt", .string(summary.nextAttempt?.description)),
                        ("status", .integer(summary.status)),
                    ])
                )
            )
        } catch {
            refuse(error, upload: id, exists: false)
        }
    }
}
