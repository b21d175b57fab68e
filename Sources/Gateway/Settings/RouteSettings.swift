// Every setting of a route: its type, unit and default. The keys and ranges are in RouteSettingsKeys.
//
// UploadForm.swift has the encodings of forms, FieldPolicy.swift the meaning of rules for fields.

package import HTTPTypes
package import SpoolgatePosix
package import SpoolgateSpool
package import SpoolgateUploadProtocol
package import SpoolgateUpstream

/// The settings of one route: the upstream that receives its uploads, and the limits for clients.
package struct RouteSettings: Sendable, Equatable {
    /// The name of the route for requests that name none.
    package static let defaultName = "default"

    /// The upstream; has no targets if the settings file names none, in which case the daemon does not start.
    package var upstream = UpstreamSettings(
        targets: [.directory(path: "/var/spool/spoolgate-delivered")]
    )
    /// The path prefix of upload resources, ending in `/`, or nil to create them below the path of the creation
    /// request.
    package var uploadResources: String?
    /// The limits for clients.
    package var limits = UploadLimits(
        maxSize: 16 << 30,
        minSize: 128 << 10,
        maxAge: 7 * 86_400
    )
    /// The maximum size in bytes of a final response's content that is stored in case the client did not receive it.
    package var maxResponseSize: Int64 = 256 << 10
    /// How long a final response is kept in case the client did not receive it.
    package var responseRetention = Duration.seconds(86_400)
    /// When and with what the client of a complete upload gets its response.
    package var reply = Reply.upstream
    /// The failure that acknowledged offsets survive.
    package var promise = UploadPromise.powerCut
    /// The minimum rate at which a client must send content, in bytes per second, or 0 for no minimum.
    ///
    /// A connection that is slower for a minute is closed.
    package var minimumRate: Int64 = 0
    /// How ordinary uploads are sent to the upstream.
    package var ordinary = OrdinaryUploads.spool
    /// How ordinary uploads that request incremental forwarding (RFC 10036) are handled.
    package var incremental = IncrementalUploads.refuse
    /// Which party implements the tus protocol for clients.
    package var tus = TusSpeaker.on
    /// The response to a tus client once the upstream has responded.
    package var tusAnswer = TusAnswer.status
    /// Which process writes content to the spool if nginx offers to do it.
    package var spoolReceive = SpoolReceive.on
    /// Whether clients that send no interop version are treated as implementing the RFC, and are sent interim 104
    /// responses.
    package var hasRFCClients = false
    /// Whether anonymous clients may upload; nil means that the setting is missing, and that they may.
    package var anonymous: AnonymousUploads?
    /// The HTTP service that decides whether an upload is accepted.
    package var authorization = ServiceSettings()
    /// The program that inspects complete uploads before delivery.
    package var inspection = InspectionSettings()
    /// How often and how long uploads are retried.
    package var queue = QueuePolicy()
    /// Whether the upstream recognizes a repeated `Idempotency-Key`, so that every delivery may be retried.
    package var honoursIdempotencyKey = false
    /// The statuses (502 or 503) by which the upstream indicates that it processed no part of the request.
    package var notProcessed: [Int] = []
    /// The format in which uploads are sent to the upstream.
    package var form = Form.body
    /// The form fields other than the file, if `form` is `multipart`.
    package var multipart = MultipartSettings()
    /// How files are passed to the upstream, if `form` is `path`.
    package var path = PathSettings()
    /// The algorithm of the digest that is sent to the upstream with each upload, or nil to send none.
    package var digest: DigestAlgorithm?
    /// The request fields that are sent to the upstream.
    package var fields = FieldPolicy()
    /// Which access web pages from other origins have (CORS).
    package var crossOrigin = CrossOrigin()

    /// Returns whether the retention of a response that was stored at `since` has ended at `time`.
    package func isResponseOld(since: WallTime, at time: WallTime) -> Bool {
        time.seconds - since.seconds > responseRetention.components.seconds
    }

    /// Creates settings with the default values.
    package init() {}
}

/// When and with what the client of a complete upload gets its response.
package enum Reply: String, Sendable, CaseIterable {
    /// The upstream's response; the request that completes the upload waits for it.
    case upstream
    /// 202 (Accepted, RFC 9110 §15.3.3) as soon as the upload is durable; it is delivered later.
    case accepted
}

/// Whether clients without an owner, which the web server has not identified, may upload.
package enum AnonymousUploads: String, Sendable, CaseIterable {
    /// They may upload; the setting confirms that the operator intends this.
    case allow
    /// Their uploads are refused with 403 before any content is read.
    case refuse
}

/// How ordinary uploads are sent to the upstream.
///
/// An ordinary upload is a POST, PUT or PATCH request without a field of an upload protocol.
package enum OrdinaryUploads: String, Sendable, CaseIterable {
    /// They are received completely, then sent with their length.
    case spool
    /// They are sent on while they are being received.
    case pass
}

/// How ordinary uploads with `Incremental: ?1` are handled if other uploads are received completely (RFC 10036 §3).
package enum IncrementalUploads: String, Sendable, CaseIterable {
    /// They are refused with 501, because content that is received completely first is not forwarded incrementally.
    case refuse
    /// They are sent on while they are being received, like all ordinary uploads under `OrdinaryUploads.pass`.
    case pass
}

/// Which process writes content to the spool if nginx's module offers to do it.
package enum SpoolReceive: String, Sendable, CaseIterable {
    /// The gateway: it declines the offer and receives the content from nginx.
    case off
    /// nginx: it writes the content to a file that the gateway passes to it.
    case on
}

/// Which party implements tus 1.0 for the clients of a route.
package enum TusSpeaker: String, Sendable, CaseIterable {
    /// The gateway.
    case on
    /// No party: requests of tus clients are handled as ordinary requests.
    case off
    /// The upstream, which is sent the requests of tus clients unchanged.
    case pass
}

/// The response to a tus client after the upstream has accepted its upload.
package enum TusAnswer: String, Sendable, CaseIterable {
    /// The response that tus specifies: 204 without the upstream's content.
    case status
    /// The upstream's status and content if the status is 2xx.
    case upstream
}

/// The format in which an upload is sent to the upstream as one ordinary request.
package enum Form: String, Sendable, CaseIterable {
    /// The content of the upload is the content of the request.
    case body
    /// The content is the file of a multipart/form-data form (RFC 7578).
    case multipart
    /// The content is in a file, whose path is in the request.
    case path
}

/// A form field whose value is in the settings.
package struct ConstantField: Sendable, Equatable {
    /// The form field's name.
    package var name: String
    /// The form field's value.
    package var value: String
}

/// A form field whose value is copied from a field of the request that created the upload.
package struct CopiedField: Sendable, Equatable {
    /// The form field's name.
    package var name: String
    /// The name of the request field that is copied.
    package var source: HTTPField.Name
}

/// The fields of a `multipart` form.
package struct MultipartSettings: Sendable, Equatable {
    /// The name of the form field that contains the file.
    package var fileField = "file"
    /// The form fields whose values are in the settings.
    package var fields: [ConstantField] = []
    /// The form fields whose values are copied from fields of the request that created the upload.
    package var fromFields: [CopiedField] = []
    /// Whether each pair in the client's `Upload-Metadata` becomes a form field.
    package var metadata = true
}

/// How files are passed to the upstream by their path.
package struct PathSettings: Sendable, Equatable {
    /// The encoding of the request that gives the upstream a file's path.
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

    /// The encoding of the request that gives the upstream a file's path.
    package var encoding = Encoding.form
    /// The directory in which the upstream finds the files; nil only if `form` is not `path`.
    package var directory: String?
    /// The file that contains the key that signs the requests; nil only if `form` is not `path`.
    package var keyFile: String?
    /// The name of the key, which is sent to the upstream, or nil to send none.
    package var keyID: String?
    /// How long a file is kept if the upstream's response is not 2xx.
    package var retention = Duration.seconds(86_400)
}

/// The settings of the program that inspects the complete uploads of a route.
package struct InspectionSettings: Sendable, Equatable {
    /// The program's absolute path and its arguments, to which the path of the upload's file is added; empty for no
    /// inspection.
    package var command: [String] = []
    /// The maximum duration of one run, and of the wait for another run to end.
    package var timeout = Duration.seconds(300)
    /// The maximum number of concurrent runs of the program.
    package var maximumConcurrent = 2
}
