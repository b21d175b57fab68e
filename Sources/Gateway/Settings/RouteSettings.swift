// Every setting of a route: its type, unit and default, then its key and range.
//
// A new setting needs a property with its default, a row of `keys`, an entry of spoolgate.yaml(5) and a line of
// deploy/spoolgate.yaml, which tests compare. Tests/GatewayTests/Gate tries each setting.

package import HTTPTypes
import SpoolgateCurl
package import SpoolgatePosix
package import SpoolgateSpool
import SpoolgateTextFormats
package import SpoolgateUploadProtocol
package import SpoolgateUpstream

/// The settings of one route: the upstream that receives its uploads, and the limits for clients.
package struct RouteSettings: Sendable, Equatable {
    /// The name of the route for requests that name none.
    package static let defaultName = "default"

    /// The upstream, which has no targets if the settings file names none; the daemon then does not start.
    package var upstream = UpstreamSettings(
        targets: [.directory(path: "/var/spool/spoolgate-delivered")]
    )
    /// The path prefix of upload resources, ending in `/`, or nil to create them below the path of the creation.
    package var uploadResources: String?
    package var limits = UploadLimits(
        maxSize: 16 << 30,
        minSize: 128 << 10,
        maxAge: 7 * 86_400
    )
    /// The maximum size in bytes of a final response's content that is stored in case the client did not receive it.
    ///
    /// Not a setting of the operator.
    package var maxResponseSize: Int64 = 256 << 10
    /// How long a final response is kept in case the client did not receive it.
    package var responseRetention = Duration.seconds(86_400)
    package var reply = Reply.upstream
    /// The kind of failure that acknowledged offsets survive.
    package var promise = UploadPromise.powerCut
    package var ordinary = OrdinaryUploads.spool
    package var tus = TusSpeaker.on
    package var tusFinalResponse = TusFinalResponse.status
    package var spoolReceive = SpoolReceive.on
    /// Whether clients without an interop version are treated as implementing the RFC, and are sent 104 responses.
    package var hasRFCClients = false
    /// Whether anonymous clients may upload; nil, a missing setting, means that they may.
    package var anonymous: AnonymousUploads?
    /// The service that decides whether an upload is accepted.
    package var authorization = ServiceSettings()
    package var inspection = InspectionSettings()
    package var queue = QueuePolicy()
    /// Whether the upstream recognizes a repeated `Idempotency-Key`, so that every delivery may be retried.
    package var honoursIdempotencyKey = false
    /// The statuses (502 or 503) that indicate that the upstream processed no part of the request.
    package var notProcessed: [Int] = []
    package var form = Form.body
    package var multipart = MultipartSettings()
    package var path = PathSettings()
    /// The algorithm of the digest that is sent with each upload, or nil to send none.
    package var digest: DigestAlgorithm?
    package var fields = FieldPolicy()
    package var crossOrigin = CrossOrigin()

    /// Returns whether the retention of a response that was stored at `since` has ended at `time`.
    package func isResponseOld(since: WallTime, at time: WallTime) -> Bool {
        time.seconds - since.seconds > responseRetention.components.seconds
    }

    /// Creates settings with the default values.
    package init() {}
}

/// When the client of a complete upload gets its response, and which response.
package enum Reply: String, Sendable, CaseIterable {
    /// The request waits for the upstream's response.
    case upstream
    /// 202 (Accepted) as soon as the upload is durable; it is delivered later.
    case accepted
}

/// Whether clients without an owner may upload, that is, clients that the web server has not identified.
package enum AnonymousUploads: String, Sendable, CaseIterable {
    /// They may upload; the setting confirms that the operator intends this.
    case allow
    /// Their uploads are refused with 403 before any content is read.
    case refuse
}

/// How ordinary uploads are sent to the upstream: POST, PUT or PATCH requests without a field of an upload protocol.
package enum OrdinaryUploads: String, Sendable, CaseIterable {
    /// They are received completely, then sent with their length.
    case spool
    /// They are sent on while they are being received.
    case pass
}

/// Which process writes content to the spool if nginx's module offers to do it.
package enum SpoolReceive: String, Sendable, CaseIterable {
    /// The gateway, which declines the offer.
    case off
    /// nginx, into a file that the gateway passes to it.
    case on
}

/// Which party implements tus 1.0 for the clients of a route.
package enum TusSpeaker: String, Sendable, CaseIterable {
    /// The gateway.
    case on
    /// No party: tus requests are handled as ordinary requests.
    case off
    /// The upstream, which receives tus requests unchanged.
    case pass
}

/// The response to a tus client after the upstream has accepted its upload.
package enum TusFinalResponse: String, Sendable, CaseIterable {
    /// 204 without the upstream's content, as tus specifies.
    case status
    /// The upstream's status and content if the status is 2xx.
    case upstream
}

/// The format in which an upload is sent to the upstream as one ordinary request.
package enum Form: String, Sendable, CaseIterable {
    /// The content of the request.
    case body
    /// The file of a multipart/form-data form (RFC 7578).
    case multipart
    /// A file whose path is in the request.
    case path
}

/// A form field whose value is in the settings.
package struct ConstantField: Sendable, Equatable {
    package var name: String
    package var value: String
}

/// A form field whose value is copied from a field of the creation.
package struct CopiedField: Sendable, Equatable {
    package var name: String
    package var source: HTTPField.Name
}

/// The fields of a `multipart` form.
package struct MultipartSettings: Sendable, Equatable {
    package var fileField = "file"
    package var fields: [ConstantField] = []
    package var fromFields: [CopiedField] = []
}

/// How files are passed to the upstream by their path.
package struct PathSettings: Sendable, Equatable {
    /// The directory in which the upstream finds the files; may be nil only if `form` is not `path`.
    package var directory: String?
    /// The file with the key that signs the requests; may be nil only if `form` is not `path`.
    package var keyFile: String?
    /// The name of the key, as sent to the upstream, or nil to send none.
    package var keyID: String?
    /// How long a file is kept if the upstream's status is not 2xx.
    package var retention = Duration.seconds(86_400)
}

/// The program that inspects the complete uploads of a route.
package struct InspectionSettings: Sendable, Equatable {
    /// The program's absolute path and arguments, to which the file's path is added; empty for no inspection.
    package var command: [String] = []
    /// The maximum duration of a run, and of the wait for another run to end.
    package var timeout = Duration.seconds(300)
    /// The maximum number of concurrent runs: half of the processors, but at least two.
    ///
    /// Not a setting of the operator.
    package var maximumConcurrent = max(2, Thread.processorCount / 2)
}

// MARK: Keys

extension RouteSettings {
    private typealias Key = SettingsKey<RouteSettings>

    private static let sizes = 1...UploadLimits.maximumSize

    /// One row for each key, in the order in which `check` prints them.
    static let keys: [SettingsKey<RouteSettings>] =
        [
            Key("upstream", \.upstream.targets, .targets()),
            Key("anonymous", \.anonymous, .word()),
            Key("upload-resources", \.uploadResources, .prefix()),
            Key("limits.max-size", \.limits.maxSize, .size(sizes)),
            Key(
                "limits.min-size",
                \.limits.minSize,
                .size(0...sizes.upperBound),
                upTo: ("limits.max-size", \.limits.maxSize)
            ),
            Key("limits.max-append-size", \.limits.maxAppendSize, .size(sizes)),
            Key("limits.max-age", \.limits.maxAge, .seconds(60...31_536_000)),
            Key("timeouts.connect", \.upstream.connectTimeout, .duration(1...3_600)),
            Key("timeouts.stall", \.upstream.stallTimeout, .duration(1...86_400)),
            Key("timeouts.response", \.upstream.responseTimeout, .duration(1...86_400)),
            Key("reuse", \.upstream.reuse, .choice()),
            Key("tls.ca", \.upstream.tls.authorities, .path()),
            Key("tls.certificate", \.upstream.tls.certificate, .path()),
            Key("tls.key", \.upstream.tls.key, .path()),
            Key("s3.region", \.upstream.bucket.region, .region()),
            Key("s3.credentials", \.upstream.bucket.credentials, .credentials()),
            Key("s3.style", \.upstream.bucket.style, .choice()),
            Key("s3.fields", \.upstream.bucket.fields, .objectFields()),
            Key("reply", \.reply, .word()),
            Key("promise", \.promise, .choice()),
            Key("ordinary", \.ordinary, .choice()),
            Key("spool-receive", \.spoolReceive, .word()),
            Key("tus", \.tus, .word()),
            Key("tus-answer", \.tusFinalResponse, .word()),
            Key("rfc-clients", \.hasRFCClients, .boolean()),
            Key("queue.maximum-concurrent", \.queue.maximumConcurrent, .integer(1...4096)),
            Key(
                "queue.minimum-backoff",
                \.queue.minimumBackoff,
                .duration(1...604_800),
                upTo: ("queue.maximum-backoff", \.queue.maximumBackoff)
            ),
            Key("queue.maximum-backoff", \.queue.maximumBackoff, .duration(1...604_800)),
            Key("queue.lifetime", \.queue.lifetime, .duration(60...31_536_000)),
            Key("queue.failed-retention", \.queue.failedRetention, .duration(60...31_536_000)),
            Key("queue.maximum-hold-size", \.queue.maximumHoldSize, .size(0...(1 << 50))),
            Key("response-retention", \.responseRetention, .duration(60...31_536_000)),
            Key("honours-idempotency-key", \.honoursIdempotencyKey, .boolean()),
            Key("not-processed", \.notProcessed, .statuses([408, 423, 429, 502, 503, 507])),
            Key("redirects.success", \.upstream.redirects.success, .places()),
            Key("redirects.login", \.upstream.redirects.login, .places()),
            Key("form", \.form, .choice()),
            Key("multipart.file-field", \.multipart.fileField, .text()),
            Key("multipart.fields", \.multipart.fields, .constants()),
            Key("multipart.from-fields", \.multipart.fromFields, .copies()),
            Key("path.directory", \.path.directory, .path()),
            Key("path.key-file", \.path.keyFile, .path()),
            Key("path.key-id", \.path.keyID, .text()),
            Key("path.retention", \.path.retention, .duration(3_600...31_536_000)),
            Key("digest", \.digest, .digest()),
            Key("fields.forward", \.fields.forward, .names()),
            Key("fields.strip", \.fields.strip, .names()),
            Key("fields.set", \.fields.set, .fields()),
            Key("fields.metadata-prefix", \.fields.metadataPrefix, .fieldPrefix()),
            Key("forwarding", \.fields.forwarding, .word()),
            Key("credentials", \.fields.credentials, .word()),
            Key("credential-fields", \.fields.furtherCredentialFields, .names()),
        ]
        + ServiceSettings.keys.map { Key("authorize", \.authorization, $0) }
        + [
            Key("inspect.command", \.inspection.command, .command()),
            Key("inspect.timeout", \.inspection.timeout, .duration(1...3_600)),
            Key("cors.origins", \.crossOrigin.origins, .origins()),
            Key("cors.credentials", \.crossOrigin.allowsCredentials, .boolean()),
            Key("cors.expose", \.crossOrigin.exposedFields, .anyNames()),
        ]

    /// The first setting that contradicts others, and the reason; otherwise nil.
    var contradiction: (key: String, reason: String)? {
        if form != .body, let store { return ("form", "\(store) upstream requires form: body") }
        if let store = upstream.serverStore {
            let kind = type(of: store)
            if store.credentials(in: upstream) == nil {
                let need = "\(kind.keySetting), a file or environment"
                return ("upstream", "\(kind.kind) upstream requires \(need)")
            }
            if limits.maxSize > kind.largestObject {
                let maximum = ByteSize.text(kind.largestObject)
                return ("limits.max-size", "an object in a bucket is limited to \(maximum)")
            }
        }
        if form == .path, path.directory == nil || path.keyFile == nil {
            return ("form", "it requires path.directory and path.key-file")
        }
        if promise == .process, reply == .accepted {
            return (
                "promise",
                "reply: accepted requires promise: power-cut, because an accepted upload must survive a power failure"
            )
        }
        for (key, isPassing, others) in [
            ("ordinary", ordinary == .pass, "ordinary: spool"),
            ("tus", tus == .pass, "tus: on or off"),
        ] {
            guard isPassing, let need = needOfWhole else { continue }
            return (
                key,
                "an upload that is not spooled cannot have \(need), which requires complete content; "
                    + "remove that setting, or use \(others)"
            )
        }
        if crossOrigin.origins.contains(CrossOrigin.anyOrigin) {
            if crossOrigin.origins.count > 1 {
                return ("cors.origins", "\"*\" means all origins and must be the only entry")
            }
            if crossOrigin.allowsCredentials {
                return (
                    "cors.credentials",
                    "with origins: \"*\", any page could upload on behalf of its visitors; list the origins"
                )
            }
        }
        return nil
    }

    /// The first setting that requires ordinary uploads to be received completely; otherwise nil.
    private var needOfWhole: String? {
        if !inspection.command.isEmpty { return "inspect.command" }
        if let digest { return "digest: \(digest.rawValue)" }
        if form != .body { return "form: \(form.rawValue)" }
        if reply == .accepted { return "reply: accepted" }
        return store.map { "\($0) upstream" }
    }

    /// The kind of upstream if the upstream stores uploads itself; otherwise nil.
    private var store: String? { upstream.store.map { type(of: $0).kind } }
}

extension FieldPolicy {
    /// The fields that the operator has added to those that always carry credentials.
    fileprivate var furtherCredentialFields: [HTTPField.Name] {
        get { Array(credentialFields.dropFirst(FieldPolicy().credentialFields.count)) }
        set { credentialFields = FieldPolicy().credentialFields + newValue }
    }
}
