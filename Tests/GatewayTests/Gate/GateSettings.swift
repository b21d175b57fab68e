// The route settings that test the gate, some for each key of `RouteSettings.keys`.
//
// A key without a row gets values of its own; it needs a row only if a test finds none.

import HTTPTypes
import SpoolgateCurl
import SpoolgatePosix
import SpoolgateSpool
import SpoolgateUploadProtocol

@testable import SpoolgateSettings
@testable import SpoolgateUpstream

/// One value of a setting, with the settings it requires.
struct GateSetting: Sendable {
    var key: String
    var change: @Sendable (inout RouteSettings, GateWorld.Places) -> Void

    private init(
        _ key: String,
        _ change: @escaping @Sendable (inout RouteSettings, GateWorld.Places) -> Void
    ) {
        self.key = key
        self.change = change
    }

    private static func row<Value: Sendable>(
        _ key: String,
        _ path: any WritableKeyPath<RouteSettings, Value> & Sendable,
        _ values: Value...
    ) -> [GateSetting] {
        values.map { value in GateSetting(key) { route, _ in route[keyPath: path] = value } }
    }

    static let all =
        rows
        + RouteSettings.keys.filter { key in !rows.contains { $0.key == key.name } }.flatMap(
            derived
        )

    /// Values for a key: texts that change the default, out of a few of each kind, or else out of the words by which
    /// the setting refuses those.
    static func derived(_ key: SettingsKey<RouteSettings>) -> [GateSetting] {
        var words: [String] = []
        func changes(_ texts: [String]) -> [GateSetting] {
            var routes = [RouteSettings()]
            return texts.compactMap { text in
                var route = RouteSettings()
                do throws(SettingsError) {
                    try set(key, text, in: &route)
                } catch {
                    words += error.reason.split { !$0.isLetter && !$0.isNumber && $0 != "-" }
                        .map(String.init)
                    return nil
                }
                guard !routes.contains(route) else { return nil }
                routes.append(route)
                return GateSetting(key.name) { route, _ in try? set(key, text, in: &route) }
            }
        }
        let plain = changes([
            "true", "false", "1", "1h", "1MiB", "/x", "/x/", "a", "x-a-", "X-A", "{X-A: b}",
            "{X-Amz-Acl: b}", "unix:/x", "https://a.test",
        ])
        return plain.isEmpty ? changes(words) : plain
    }

    /// Sets a key as a settings file does.
    private static func set(
        _ key: SettingsKey<RouteSettings>,
        _ text: String,
        in route: inout RouteSettings
    ) throws(SettingsError) {
        guard let node = try YAMLDocument.root(of: text, file: "") else { return }
        let value = SettingsValue(file: "", name: key.name, node: node)
        try SettingsKey.take([key.name: value], by: [key], into: &route)
    }

    private static let rows: [GateSetting] = [
        [
            GateSetting("upstream") { $0.upstream.targets = [.directory(path: $1.drop)] },
            GateSetting("upstream") { route, places in
                route.upstream.targets = [
                    .bucket(BucketAddress(endpoint: places.upstream, name: "b"))
                ]
                route.upstream.bucket.credentials = .file(places.credentials)
            },
        ],
        row("anonymous", \.anonymous, .allow, .refuse),
        row("upload-resources", \.uploadResources, "/r/"),
        row("limits.max-size", \.limits.maxSize, 4_000),
        row("limits.min-size", \.limits.minSize, 0, 1 << 20),
        row("limits.max-append-size", \.limits.maxAppendSize, 2_000),
        row("limits.max-age", \.limits.maxAge, 3_600),
        row("timeouts.connect", \.upstream.connectTimeout, .seconds(3)),
        row("timeouts.stall", \.upstream.stallTimeout, .seconds(30)),
        row("timeouts.response", \.upstream.responseTimeout, .seconds(30)),
        row("reuse", \.upstream.reuse, .always),
        row("tls.ca", \.upstream.tls.authorities, "/ca"),
        row("tls.certificate", \.upstream.tls.certificate, "/c"),
        row("tls.key", \.upstream.tls.key, "/k"),
        row("s3.region", \.upstream.bucket.region, "eu-1"),
        [GateSetting("s3.credentials") { $0.upstream.bucket.credentials = .file($1.credentials) }],
        row("s3.style", \.upstream.bucket.style, .virtualHost),
        row("s3.fields", \.upstream.bucket.fields, [.init(name: .made("x-amz-acl"), value: "p")]),
        row("reply", \.reply, .upstream, .accepted),
        row("promise", \.promise, .powerCut, .process),
        row("ordinary", \.ordinary, .spool, .pass),
        row("spool-receive", \.spoolReceive, .off),
        row("tus", \.tus, .on, .off, .pass),
        row("tus-answer", \.tusFinalResponse, .upstream),
        row("rfc-clients", \.hasRFCClients, true),
        row("queue.maximum-concurrent", \.queue.maximumConcurrent, 1),
        row("queue.minimum-backoff", \.queue.minimumBackoff, .seconds(600)),
        row("queue.maximum-backoff", \.queue.maximumBackoff, .seconds(1_200)),
        row("queue.lifetime", \.queue.lifetime, .seconds(7_200)),
        row("queue.failed-retention", \.queue.failedRetention, .seconds(7_200)),
        row("queue.maximum-hold-size", \.queue.maximumHoldSize, 1 << 20),
        row("response-retention", \.responseRetention, .seconds(600)),
        row("honours-idempotency-key", \.honoursIdempotencyKey, true),
        row("not-processed", \.notProcessed, [502]),
        [
            GateSetting("redirects.success") { route, _ in
                route.upstream.redirects.success = ["/done"].compactMap { RedirectPlace($0) }
            },
            GateSetting("redirects.login") { route, _ in
                route.upstream.redirects.login = ["/login"].compactMap { RedirectPlace($0) }
            },
        ],
        row("form", \.form, .multipart),
        [
            GateSetting("form") { route, places in
                route.form = .path
                (route.path.directory, route.path.keyFile) = (places.handover, places.key)
            }
        ],
        row("multipart.file-field", \.multipart.fileField, "f"),
        row("multipart.fields", \.multipart.fields, [ConstantField(name: "a", value: "b")]),
        row(
            "multipart.from-fields",
            \.multipart.fromFields,
            [CopiedField(name: "a", source: .made("x-a"))]
        ),
        [GateSetting("path.directory") { $0.path.directory = $1.handover }],
        [GateSetting("path.key-file") { $0.path.keyFile = $1.key }],
        row("path.key-id", \.path.keyID, "k"),
        row("path.retention", \.path.retention, .seconds(7_200)),
        row("digest", \.digest, .sha256),
        row("fields.forward", \.fields.forward, [.accept]),
        row("fields.strip", \.fields.strip, [.made("x-http-method-override")]),
        row("fields.set", \.fields.set, [.init(name: .made("x-a"), value: "b")]),
        row("fields.metadata-prefix", \.fields.metadataPrefix, "x-meta-"),
        row("forwarding", \.fields.forwarding, .both, .trust),
        row("credentials", \.fields.credentials, .completing, .none),
        row("credential-fields", \.fields.credentialFields, [.authorization, .made("x-key")]),
        [GateSetting("authorize.url") { $0.authorization.url = $1.authorizer }],
        row("authorize.timeout", \.authorization.timeout, .seconds(30)),
        row("authorize.tls.ca", \.authorization.tls.authorities, "/ca"),
        row("authorize.tls.certificate", \.authorization.tls.certificate, "/c"),
        row("authorize.tls.key", \.authorization.tls.key, "/k"),
        row("inspect.command", \.inspection.command, ["/bin/true"]),
        row("inspect.timeout", \.inspection.timeout, .seconds(60)),
        row("cors.origins", \.crossOrigin.origins, ["https://a.test"]),
        row("cors.credentials", \.crossOrigin.allowsCredentials, true),
        row("cors.expose", \.crossOrigin.exposedFields, [.made("x-a")]),
    ].flatMap { $0 }
}

extension RouteSettings {
    /// Whether the upstream receives only complete uploads.
    var needsWhole: Bool {
        upstream.store != nil || form != .body || digest != nil || reply == .accepted
            || !inspection.command.isEmpty
    }
}
