// A route's settings: one row per key, in the order in which `check` prints them.

import HTTPTypes
import SpoolgateCurl
import SpoolgatePosix
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream

extension RouteSettings {
    private typealias Key = SettingsKey<RouteSettings>

    private static let sizes = 1...UploadLimits.maximumSize

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
