// Every setting of a route: its type, unit and default. Their keys and ranges are in RouteSettingsKeys.
//
// How a form is written stands in UploadForm.swift, what the rules of fields mean in FieldPolicy.swift.

package import HTTPTypes
package import SpoolgatePosix
package import SpoolgateSpool
package import SpoolgateUploadProtocol
package import SpoolgateUpstream

/// One route: which upstream gets the uploads, and what clients may send.
package struct RouteSettings: Sendable, Equatable {
    /// The route of requests that name none.
    package static let defaultName = "default"

    /// The upstream; without targets where a file does not name it, and then nothing can be served.
    package var upstream = UpstreamSettings(
        targets: [.directory(path: "/var/spool/spoolgate-delivered")]
    )
    /// Path prefix of the upload resources, ends in `/`; nil: below the creation's own path.
    package var uploadResources: String?
    /// What clients may send.
    package var limits = UploadLimits(
        maxSize: 16 << 30,
        minSize: 128 << 10,
        maxAge: 7 * 86_400
    )
    /// Most bytes of a final response's content that are stored for a client that lost it.
    package var maxResponseSize: Int64 = 256 << 10
    /// How long a final response is kept for a client that lost it.
    package var responseRetention = Duration.seconds(86_400)
    /// What the client of a whole upload gets.
    package var reply = Reply.upstream
    /// What a promise to a client survives.
    package var promise = UploadPromise.powerCut
    /// Bytes a second that content has to bring: below it for a minute, its connection is closed; 0: any.
    package var minimumRate: Int64 = 0
    /// How ordinary uploads reach the upstream.
    package var ordinary = OrdinaryUploads.spool
    /// What becomes of ordinary uploads that ask to be forwarded as they come (RFC 10036).
    package var incremental = IncrementalUploads.refuse
    /// Who speaks tus with its clients.
    package var tus = TusSpeaker.on
    /// What a client of tus hears of the upstream's answer.
    package var tusAnswer = TusAnswer.status
    /// Who writes content into the spool, if nginx offers to.
    package var spoolReceive = SpoolReceive.on
    /// Whether clients that name no interop version are those of the RFC, and hear 104.
    package var hasRFCClients = false
    /// Whether anonymous clients may upload; nil: nothing is said, and they may.
    package var anonymous: AnonymousUploads?
    /// Who is asked whether an upload may come in.
    package var authorization = ServiceSettings()
    /// What looks at a whole upload before it is delivered.
    package var inspection = InspectionSettings()
    /// When the queue tries an upload again.
    package var queue = QueuePolicy()
    /// Whether the upstream recognises a repeated `Idempotency-Key`, so that any delivery may be repeated.
    package var honoursIdempotencyKey = false
    /// Statuses of the upstream, 502 or 503, that mean that nothing of the request was processed.
    package var notProcessed: [Int] = []
    /// In which form uploads go to the upstream.
    package var form = Form.body
    /// What a `multipart` form has beside the file.
    package var multipart = MultipartSettings()
    /// How a `path` form hands a file over.
    package var path = PathSettings()
    /// The digest that the upstream is told of each upload; nil: none.
    package var digest: DigestAlgorithm?
    /// Which fields go to the upstream.
    package var fields = FieldPolicy()
    /// What pages of other origins may do.
    package var crossOrigin = CrossOrigin()

    /// Whether a response stored at `since` was kept for as long as the route keeps one at `time`.
    package func isResponseOld(since: WallTime, at time: WallTime) -> Bool {
        time.seconds - since.seconds > responseRetention.components.seconds
    }

    /// The product's defaults.
    package init() {}
}

/// What the client of a whole upload gets.
package enum Reply: String, Sendable, CaseIterable {
    /// The upstream's response; the completing request waits for it.
    case upstream
    /// 202 (Accepted) as soon as the upload is durable; the queue delivers it (RFC 9110 §15.3.3).
    case accepted
}

/// What clients may do of whom the web server does not say who they are.
package enum AnonymousUploads: String, Sendable, CaseIterable {
    /// They may upload, and that is meant.
    case allow
    /// Their uploads are refused with 403, before any content is read.
    case refuse
}

/// How ordinary uploads reach the upstream: POST, PUT and PATCH without a mark of the upload protocol.
package enum OrdinaryUploads: String, Sendable, CaseIterable {
    /// Received whole, then sent with their length.
    case spool
    /// Streamed as they come.
    case pass
}

/// What becomes of ordinary uploads with `Incremental: ?1` where others are received whole (RFC 10036 §3).
package enum IncrementalUploads: String, Sendable, CaseIterable {
    /// 501, since what is received whole is not forwarded as it comes.
    case refuse
    /// Streamed as they come, as `OrdinaryUploads.pass` does with all.
    case pass
}

/// Who writes content into the spool, where nginx's module offers to.
package enum SpoolReceive: String, Sendable, CaseIterable {
    /// The gateway: it declines, and content comes through the socket.
    case off
    /// nginx, into the file that the gateway hands it.
    case on
}

/// Who speaks tus 1.0 with a route's clients.
package enum TusSpeaker: String, Sendable, CaseIterable {
    /// The gateway.
    case on
    /// Nobody: what clients of tus send is as ordinary as anything else.
    case off
    /// The upstream: requests of tus reach it as they are.
    case pass
}

/// What a client of tus hears when the upstream has taken its upload.
package enum TusAnswer: String, Sendable, CaseIterable {
    /// What tus says: 204 to an append, without the upstream's content.
    case status
    /// The upstream's status and content, where that is 2xx.
    case upstream
}

/// How an upload becomes the content of one regular request.
package enum Form: String, Sendable, CaseIterable {
    /// As it is.
    case body
    /// As the file of a multipart/form-data form (RFC 7578).
    case multipart
    /// As a file in a directory of which the request tells the path.
    case path
}

/// A form field that gets its value from the settings.
package struct ConstantField: Sendable, Equatable {
    /// The form field's name.
    package var name: String
    /// Its value.
    package var value: String
}

/// A form field that gets its value from a field of the creation.
package struct CopiedField: Sendable, Equatable {
    /// The form field's name.
    package var name: String
    /// The request field's name.
    package var source: HTTPField.Name
}

/// What a `multipart` form has beside the file.
package struct MultipartSettings: Sendable, Equatable {
    /// The name of the file's form field.
    package var fileField = "file"
    /// Fields with the settings' own values.
    package var fields: [ConstantField] = []
    /// Fields with values of the creation's fields.
    package var fromFields: [CopiedField] = []
    /// Whether each pair of the client's `Upload-Metadata` becomes a field.
    package var metadata = true
}

/// How a `path` form hands a file over.
package struct PathSettings: Sendable, Equatable {
    /// How the members of a notice are written.
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

    /// How the request's content is written.
    package var encoding = Encoding.form
    /// The directory in which the upstream finds the file; nil only without a `path` form.
    package var directory: String?
    /// The file with the key of the signature; nil only without a `path` form.
    package var keyFile: String?
    /// What the upstream knows the key by; nil: it is not told.
    package var keyID: String?
    /// How long a file stays that the upstream did not answer 2xx for.
    package var retention = Duration.seconds(86_400)
}

/// The inspection of one route.
package struct InspectionSettings: Sendable, Equatable {
    /// The program's absolute path and its arguments, to which the file's path is added; empty: none.
    package var command: [String] = []
    /// Longest time of one run, and of the wait for a free place.
    package var timeout = Duration.seconds(300)
    /// Most runs at a time.
    package var maximumConcurrent = 2
}
