// Every setting of a route: its type, unit and default. The keys and ranges are in RouteSettingsKeys.
//
// UploadForm.swift has the encodings of forms, FieldPolicy.swift the meaning of rules for fields.

package import HTTPTypes
package import SpoolgatePosix
package import SpoolgateSpool
package import SpoolgateUploadProtocol
package import SpoolgateUpstream

/// One route: the upstream of its uploads, and the limits for clients.
package struct RouteSettings: Sendable, Equatable {
    /// The route of requests that name none.
    package static let defaultName = "default"

    /// The upstream; without targets if a file names none, and then no daemon can serve.
    package var upstream = UpstreamSettings(
        targets: [.directory(path: "/var/spool/spoolgate-delivered")]
    )
    /// The path prefix of upload resources, which ends in `/`; nil: below the creation's own path.
    package var uploadResources: String?
    /// The limits for clients.
    package var limits = UploadLimits(
        maxSize: 16 << 30,
        minSize: 128 << 10,
        maxAge: 7 * 86_400
    )
    /// The maximum size of a final response's content that is stored for a client that lost it.
    package var maxResponseSize: Int64 = 256 << 10
    /// The retention of a final response for a client that lost it.
    package var responseRetention = Duration.seconds(86_400)
    /// The response to the client of a complete upload.
    package var reply = Reply.upstream
    /// The failures that a promise to a client survives.
    package var promise = UploadPromise.powerCut
    /// The minimum rate of content in bytes per second; a connection that is slower for a minute is closed; 0: any
    /// rate.
    package var minimumRate: Int64 = 0
    /// The way of ordinary uploads to the upstream.
    package var ordinary = OrdinaryUploads.spool
    /// The handling of ordinary uploads that ask for incremental forwarding (RFC 10036).
    package var incremental = IncrementalUploads.refuse
    /// The party that implements tus for the clients.
    package var tus = TusSpeaker.on
    /// The response to clients of tus after the upstream has responded.
    package var tusAnswer = TusAnswer.status
    /// The process that writes content to the spool if nginx offers to.
    package var spoolReceive = SpoolReceive.on
    /// Whether clients that name no interop version are treated as clients of the RFC, and receive 104.
    package var hasRFCClients = false
    /// Whether anonymous clients may upload; nil: not set, and they may.
    package var anonymous: AnonymousUploads?
    /// The authorizer, which decides whether an upload is accepted.
    package var authorization = ServiceSettings()
    /// The inspection of complete uploads before delivery.
    package var inspection = InspectionSettings()
    /// The retry policy.
    package var queue = QueuePolicy()
    /// Whether the upstream recognizes a repeated `Idempotency-Key`, so that any delivery may be repeated.
    package var honoursIdempotencyKey = false
    /// Statuses of the upstream, 502 or 503, that mean that it processed no part of the request.
    package var notProcessed: [Int] = []
    /// The form in which uploads are sent to the upstream.
    package var form = Form.body
    /// The parts of a `multipart` form other than the file.
    package var multipart = MultipartSettings()
    /// The handover of files by a `path` form.
    package var path = PathSettings()
    /// The digest of each upload that is sent to the upstream; nil: none.
    package var digest: DigestAlgorithm?
    /// The fields that are sent to the upstream.
    package var fields = FieldPolicy()
    /// The rights of pages of other origins.
    package var crossOrigin = CrossOrigin()

    /// Whether the retention of a response stored at `since` has ended at `time`.
    package func isResponseOld(since: WallTime, at time: WallTime) -> Bool {
        time.seconds - since.seconds > responseRetention.components.seconds
    }

    /// Creates the product's defaults.
    package init() {}
}

/// The response to the client of a complete upload.
package enum Reply: String, Sendable, CaseIterable {
    /// The upstream's response; the completing request waits until it is received.
    case upstream
    /// 202 (Accepted) as soon as the upload is durable; the queue delivers it (RFC 9110 §15.3.3).
    case accepted
}

/// The rights of clients that the web server does not identify.
package enum AnonymousUploads: String, Sendable, CaseIterable {
    /// They may upload, as the operator intends.
    case allow
    /// Their uploads are refused with 403 before any content is read.
    case refuse
}

/// The way of ordinary uploads to the upstream: POST, PUT and PATCH without a field of the upload protocol.
package enum OrdinaryUploads: String, Sendable, CaseIterable {
    /// They are received completely, then sent with their length.
    case spool
    /// They are streamed while they are received.
    case pass
}

/// The handling of ordinary uploads with `Incremental: ?1` if other uploads are received completely (RFC 10036 §3).
package enum IncrementalUploads: String, Sendable, CaseIterable {
    /// 501, because content that is received completely first is not forwarded incrementally.
    case refuse
    /// They are streamed, as `OrdinaryUploads.pass` does with all ordinary uploads.
    case pass
}

/// The process that writes content to the spool if nginx's module offers to.
package enum SpoolReceive: String, Sendable, CaseIterable {
    /// The gateway: it declines, and content is sent through the socket.
    case off
    /// nginx, to the file that the gateway passes to it.
    case on
}

/// The party that implements tus 1.0 for a route's clients.
package enum TusSpeaker: String, Sendable, CaseIterable {
    /// The gateway.
    case on
    /// Neither: requests of tus clients are ordinary requests.
    case off
    /// The upstream, which receives requests of tus unchanged.
    case pass
}

/// The response to a tus client after the upstream has accepted its upload.
package enum TusAnswer: String, Sendable, CaseIterable {
    /// The response that tus specifies: 204 to an append, without the upstream's content.
    case status
    /// The upstream's status and content if the status is 2xx.
    case upstream
}

/// The encoding of an upload as the content of one regular request.
package enum Form: String, Sendable, CaseIterable {
    /// The content itself.
    case body
    /// The file of a multipart/form-data form (RFC 7578).
    case multipart
    /// A file in a directory, whose path is in the request.
    case path
}

/// A form field with a value from the settings.
package struct ConstantField: Sendable, Equatable {
    /// The form field's name.
    package var name: String
    /// Its value.
    package var value: String
}

/// A form field with the value of a field of the creation.
package struct CopiedField: Sendable, Equatable {
    /// The form field's name.
    package var name: String
    /// The request field's name.
    package var source: HTTPField.Name
}

/// The parts of a `multipart` form other than the file.
package struct MultipartSettings: Sendable, Equatable {
    /// The name of the file's form field.
    package var fileField = "file"
    /// Fields with values from the settings.
    package var fields: [ConstantField] = []
    /// Fields with values of the creation's fields.
    package var fromFields: [CopiedField] = []
    /// Whether each pair of the client's `Upload-Metadata` becomes a field.
    package var metadata = true
}

/// The handover of files by a `path` form.
package struct PathSettings: Sendable, Equatable {
    /// The encoding of a notice.
    package enum Encoding: String, Sendable, CaseIterable {
        /// `application/x-www-form-urlencoded`.
        case form
        /// `application/json`, one object.
        case json

        /// The `Content-Type` of the request.
        package var contentType: String {
            switch self {
            case .form: "application/x-www-form-urlencoded"
            case .json: "application/json"
            }
        }
    }

    /// The encoding of the request's content.
    package var encoding = Encoding.form
    /// The directory in which the upstream finds the file; nil only without a `path` form.
    package var directory: String?
    /// The file with the key of the signature; nil only without a `path` form.
    package var keyFile: String?
    /// The name of the key for the upstream; nil: it is not sent.
    package var keyID: String?
    /// The retention of a file if the upstream's response is not 2xx.
    package var retention = Duration.seconds(86_400)
}

/// The inspection of one route.
package struct InspectionSettings: Sendable, Equatable {
    /// The program's absolute path and its arguments, followed by the file's path; empty: no inspection.
    package var command: [String] = []
    /// The longest duration of one run, and of the wait for a free slot.
    package var timeout = Duration.seconds(300)
    /// The maximum number of concurrent runs.
    package var maximumConcurrent = 2
}
