// Invalid settings, each with its error's exact position and message.

import SpoolgateUploadProtocol

@testable import SpoolgateSettings
@testable import SpoolgateUpstream

extension SettingsTests {
    static let wrongTexts = wrongKeys + wrongValues + wrongForms + wrongFields + wrongYAML

    /// The list of the valid names in a section, whose keys are `keys`.
    private static func valid(_ keys: [String]) -> String {
        var names: [Substring] = []
        for name in keys.map({ $0.prefix { $0 != "." } }) where !names.contains(name) {
            names.append(name)
        }
        return "valid settings: " + names.joined(separator: ", ")
    }

    private static func valid(ofRoute section: String) -> String {
        let keys = RouteSettings.keys.map(\.name).filter { $0.hasPrefix("\(section).") }
        return valid(keys.map { String($0.dropFirst(section.count + 1)) })
    }

    private static let schemes: String = {
        let stores = UpstreamTarget.stores.map { "\($0.scheme):" }
        return (["http://", "https://", "unix:"] + stores.dropLast()).joined(separator: ", ")
            + stores.suffix(1).map { " or \($0)" }.joined()
    }()

    private static let newest = Dialect.versions.upperBound
    private static let aliasForm =
        "expected an unknown version, such as \(newest + 1), mapped to one of "
        + "\(Dialect.versions.lowerBound) to \(newest)"

    private static let wrongKeys = [
        Wrong(
            "spol: {}\n",
            "1:1: spol: unknown setting; did you mean spool?"
        ),
        Wrong(
            "storage: {}\n",
            "1:1: storage: unknown setting; "
                + valid(Settings.keys.map(\.name) + ["routes"])
        ),
        Wrong(
            "routes: {a: {annonymous: allow}}\n",
            "1:14: routes.a.annonymous: unknown setting; did you mean anonymous?"
        ),
        Wrong(
            "routes: {a: {limits.max-size: 1GiB}}\n",
            "1:14: routes.a.limits.max-size: unknown setting; write max-size: on its own line below "
                + "limits:"
        ),
        Wrong(
            "limits: {max-size: 1GiB}\n",
            "1:1: limits: unknown setting; it is a route setting: write it below routes: and the "
                + "route's name"
        ),
        Wrong(
            "interop-alias: {\(newest): 9}\n",
            "1:21: interop-alias.\(newest): \(aliasForm)"
        ),
        Wrong(
            "interop-alias: {\(newest + 1): \(newest + 2)}\n",
            "1:21: interop-alias.\(newest + 1): \(aliasForm)"
        ),
        Wrong(
            "spool.reserve: 1GiB\n",
            "1:1: spool.reserve: unknown setting; write reserve: on its own line below spool:"
        ),
        Wrong(
            "spool:\n  reserve: 1GiB\n  size: 1GiB\n",
            "3:3: spool.size: unknown setting; valid settings: directory, shared, reserve, quota, "
                + "maximum-uploads"
        ),
        Wrong(
            "spool: {shared: true}\n",
            "1:17: spool.shared: each host that shares the spool needs its own node name (node: n1)"
        ),
        Wrong(
            "node: n1\nspool:\n  shared: true\nroutes: {a: {promise: process}}\n",
            "3:11: spool.shared: routes.a.promise is process, which does not survive the "
                + "failure of a host; use promise: power-cut"
        ),
        Wrong(
            "node: N1\n",
            "1:7: node: 'N1' is not valid; use 1 to 8 lower-case letters or digits"
        ),
        Wrong(
            "routes:\n  a:\n    limits: {max: 1B}\n",
            "3:14: routes.a.limits.max: unknown setting; \(valid(ofRoute: "limits"))"
        ),
        Wrong(
            "routes: {a: {queue: {backoff: 1s}}}\n",
            "1:22: routes.a.queue.backoff: unknown setting; \(valid(ofRoute: "queue"))"
        ),
        Wrong(
            "spool: {directory: /a}\nspool: {reserve: 0}\n",
            "2:1: duplicate key 'spool', first used in line 1; merge the two"
        ),
        Wrong(
            "routes:\n  a: {}\n  b: {}\n  a: {}\n",
            "4:3: duplicate key 'a', first used in line 2; merge the two"
        ),
        Wrong("? [a]\n: b\n", "1:3: a key must be a plain word"),
    ]

    private static let wrongValues = [
        Wrong(
            "correlation-field: 'a b'\n",
            "1:20: correlation-field: 'a b' is not the name of a field that is forwarded to the "
                + "upstream, such as X-Request-Id"
        ),
        Wrong(
            "correlation-field: Upload-Offset\n",
            "1:20: correlation-field: 'Upload-Offset' is not the name of a field that is "
                + "forwarded to the upstream, such as X-Request-Id"
        ),
        Wrong(
            "events: {to: events.json}\n",
            "1:14: events.to: 'events.json' is not valid; use journal or an absolute path"
        ),
        Wrong(
            "events: {webhook: {url: 'directory:/a'}}\n",
            "1:25: events.webhook.url: 'directory:/a': it must begin with http://, https:// or unix:"
        ),
        Wrong(
            "routes: {a: {authorize: {url: ask.example}}}\n",
            "1:31: routes.a.authorize.url: 'ask.example': it must begin with \(schemes)"
        ),
        Wrong(
            "routes: {a: {authorize: {cache: 1s}}}\n",
            "1:26: routes.a.authorize.cache: unknown setting; valid settings: url, timeout, tls"
        ),
        Wrong(
            "routes: {a: {inspect: {command: [clamdscan, --fdpass]}}}\n",
            "1:34: routes.a.inspect.command: 'clamdscan' is not an absolute path without NUL"
        ),
        Wrong(
            "threads: {maximum-waiting: 1, spare: 1}\n",
            "1:31: threads.spare: unknown setting; valid settings: maximum"
        ),
        Wrong("- listen\n", "1:1: the settings must be a mapping of keys to values"),
        Wrong("listen", "1:1: the settings must be a mapping of keys to values"),
        Wrong("spool: /srv\n", "1:8: spool must be a mapping of keys to values"),
        Wrong("routes:\n  a: http://b\n", "2:6: routes.a must be a mapping of keys to values"),
        Wrong("routes: [a]\n", "1:9: routes must be a mapping of keys to values"),
        Wrong(
            "listen: localhost:9000\n",
            "1:9: listen: 'localhost:9000' is not valid; use unix:/path, tcp:host:port or systemd"
        ),
        Wrong(
            "listen: tcp:localhost:65536\n",
            "1:9: listen: 'tcp:localhost:65536' is not valid; use unix:/path, tcp:host:port or "
                + "systemd"
        ),
        Wrong(
            "listen: [systemd]\n",
            "1:9: listen: expected unix:/path, tcp:host:port or systemd"
        ),
        Wrong(
            "socket-mode: 0668\n",
            "1:14: socket-mode: '0668' is not an octal mode such as \"0660\""
        ),
        Wrong("socket-group: ''\n", "1:15: socket-group: '' must not be empty"),
        Wrong(
            "log-level: loud\n",
            "1:12: log-level: 'loud' is not one of trace, debug, info, notice, warning, error, "
                + "critical"
        ),
        Wrong(
            "spool: {directory: spool}\n",
            "1:20: spool.directory: 'spool' is not an absolute path without control "
                + "characters"
        ),
        Wrong(
            #"spool: {directory: "/a\tb"}"#,
            "1:20: spool.directory: '/a\tb' is not an absolute path without control characters"
        ),
        Wrong(
            "spool: {reserve: 1.5GiB}\n",
            "1:18: spool.reserve: '1.5GiB' is not a size from 0 to 1024TiB, such as 64KiB or 16GiB"
        ),
        Wrong(
            "spool: {reserve: 1025TiB}\n",
            "1:18: spool.reserve: '1025TiB' is not a size from 0 to 1024TiB, such as 64KiB or 16GiB"
        ),
        Wrong(
            "spool:\n  reserve: 99999999999999999999TiB\n",
            "2:12: spool.reserve: '99999999999999999999TiB' is not a size from 0 to 1024TiB, such "
                + "as 64KiB or 16GiB"
        ),
        Wrong(
            "threads:\n  maximum: 0\n",
            "2:12: threads.maximum: '0' is not a whole number from 1 to 65536"
        ),
        Wrong(
            "threads:\n  maximum: many\n",
            "2:12: threads.maximum: 'many' is not a whole number from 1 to 65536"
        ),
        Wrong(
            "timeouts: {in-use: 999ms}\n",
            "1:20: timeouts.in-use: '999ms' is not a duration from 1s to 3600s, such as 30s or 24h"
        ),
        Wrong(
            "timeouts: {in-use: 20}\n",
            "1:20: timeouts.in-use: '20' is not a duration from 1s to 3600s, such as 30s or 24h"
        ),
        Wrong(
            "interim: {heartbeat: 999ms}\n",
            "1:22: interim.heartbeat: '999ms' is not 0s or a duration from 1s to 3600s, such as "
                + "30s or 24h"
        ),
        Wrong(
            "interim: {heartbeat: off}\n",
            "1:22: interim.heartbeat: 'off' is not 0s or a duration from 1s to 3600s, such as "
                + "30s or 24h"
        ),
        Wrong(
            "routes: {a: {honours-idempotency-key: yes}}\n",
            "1:39: routes.a.honours-idempotency-key: 'yes' is not valid; use true or false"
        ),
        Wrong(
            "routes: {a: {spool-receive: auto}}\n",
            "1:29: routes.a.spool-receive: 'auto' is not valid; use off or on"
        ),
        Wrong(
            "routes: {a: {anonymous: deny}}\n",
            "1:25: routes.a.anonymous: 'deny' is not valid; use allow or refuse"
        ),
        Wrong(
            "routes: {a: {upload-resources: /u}}\n",
            "1:32: routes.a.upload-resources: '/u' is not a path that begins and ends with /"
        ),
        Wrong(
            "routes: {a: {upstream: [\"http://b\", x]}}\n",
            "1:37: routes.a.upstream: 'x': it must begin with \(schemes)"
        ),
        Wrong(
            "routes: {a: {upstream: [[x]]}}\n",
            "1:25: routes.a.upstream: expected a single value, or a list of them"
        ),
        Wrong(
            "routes: {a: {upstream: []}}\n",
            "1:24: routes.a.upstream: expected at least one target"
        ),
        Wrong(
            "routes:\n  a:\n    upstream:\n      - unix:/a\n      - unix:/b\n      - unix:/a\n",
            "6:9: routes.a.upstream: 'unix:/a': this target is listed twice"
        ),
        Wrong(
            "routes: {a: {upstream: [\"unix:/a\", \"directory:/b\"]}}\n",
            "1:36: routes.a.upstream: 'directory:/b': a directory or a bucket must be the only target of its route"
        ),
        Wrong(
            "routes: {a: {upstream: [\"directory:/b\", \"unix:/a\"]}}\n",
            "1:41: routes.a.upstream: 'unix:/a': a directory or a bucket must be the only target of its route"
        ),
        Wrong(
            "routes: {a: {limits: {min-size: 2KiB, max-size: 1KiB}}}\n",
            "1:33: routes.a.limits.min-size: '2KiB' exceeds limits.max-size, which is 1KiB"
        ),
        Wrong(
            "routes: {a: {limits: {min-size: 17GiB}}}\n",
            "1:33: routes.a.limits.min-size: '17GiB' exceeds limits.max-size, which is 16GiB"
        ),
        Wrong(
            "routes: {a: {queue: {minimum-backoff: 5s, maximum-backoff: 3s}}}\n",
            "1:39: routes.a.queue.minimum-backoff: '5s' exceeds queue.maximum-backoff, which is "
                + "3s"
        ),
        Wrong(
            "routes: {a: {queue: {minimum-backoff: 2h}}}\n",
            "1:39: routes.a.queue.minimum-backoff: '2h' exceeds queue.maximum-backoff, which is "
                + "1h"
        ),
    ]

    private static let wrongForms = [
        Wrong(
            "routes: {a: {form: file}}\n",
            "1:20: routes.a.form: 'file' is not one of body, multipart, path"
        ),
        Wrong(
            "routes: {a: {upstream: \"directory:/d\", form: multipart}}\n",
            "1:46: routes.a.form: 'multipart': a directory: upstream requires form: body"
        ),
        Wrong(
            "routes: {a: {upstream: \"s3:http://b/drop\", form: path, s3: {credentials: /k}}}\n",
            "1:50: routes.a.form: 'path': an s3: upstream requires form: body"
        ),
        Wrong(
            "routes: {a: {upstream: \"s3:http://b/drop\", ordinary: pass, s3: {credentials: /k}}}\n",
            "1:54: routes.a.ordinary: 'pass': an upload that is not spooled cannot have an s3: "
                + "upstream, which requires complete content; remove that setting, or use ordinary: "
                + "spool"
        ),
        Wrong(
            "routes: {a: {upstream: \"s3:http://b/drop\", s3: {region: r}}}\n",
            "1:24: routes.a.upstream: 's3:http://b/drop': an s3: upstream requires "
                + "s3.credentials, a file or environment"
        ),
        Wrong(
            "routes: {a: {upstream: 's3:http://b/d/', s3: {credentials: /k}}}\n",
            "1:24: routes.a.upstream: 's3:http://b/d/': s3: 'd' is not a bucket name; use 3 to "
                + "255 letters, digits, dots, hyphens and underscores, and separate a prefix with a "
                + "slash"
        ),
        Wrong(
            "routes: {a: {upstream: 's3:http://b/drop', s3: {credentials: /k}, limits: {max-size: 6TiB}}}"
                + "\n",
            "1:86: routes.a.limits.max-size: '6TiB': an object in a bucket is limited to 5TiB"
        ),
        Wrong(
            "routes: {a: {upstream: ['s3:http://b/drop', 'http://c']}}\n",
            "1:45: routes.a.upstream: 'http://c': a directory or a bucket must be the only target of its route"
        ),
        Wrong(
            "routes: {a: {s3: {region: EU}}}\n",
            "1:27: routes.a.s3.region: 'EU' is not a region, such as eu-central-1: up to 63 "
                + "lower-case letters, digits and hyphens"
        ),
        Wrong(
            "routes: {a: {s3: {fields: {X-Amz-Copy-Source: /a/b}}}}\n",
            "1:47: routes.a.s3.fields.X-Amz-Copy-Source: expected Cache-Control, Expires or an "
                + "X-Amz- field that the gateway does not set, with a value of ASCII characters"
        ),
        Wrong(
            "routes: {a: {s3: {fields: {X-Amz-Acl: 'ü'}}}}\n",
            "1:39: routes.a.s3.fields.X-Amz-Acl: expected Cache-Control, Expires or an X-Amz- "
                + "field that the gateway does not set, with a value of ASCII characters"
        ),
        Wrong(
            "events: {webhook: {url: 's3:http://a/drop'}}\n",
            "1:25: events.webhook.url: 's3:http://a/drop': it must begin with http://, https:// or unix:"
        ),
        Wrong(
            "routes: {a: {upstream: \"http://b\", form: path, path: {directory: /d}}}\n",
            "1:42: routes.a.form: 'path': it requires path.directory and path.key-file"
        ),
        Wrong(
            "routes: {a: {upstream: \"http://b\", form: path, path: {key-file: /k}}}\n",
            "1:42: routes.a.form: 'path': it requires path.directory and path.key-file"
        ),
        Wrong(
            "routes: {a: {path: {key-file: k}}}\n",
            "1:31: routes.a.path.key-file: 'k' is not an absolute path without control "
                + "characters"
        ),
        Wrong(
            "routes: {a: {path: {retention: 59m}}}\n",
            "1:32: routes.a.path.retention: '59m' is not a duration from 3600s to 31536000s, such as "
                + "30s or 24h"
        ),
        Wrong(
            "routes: {a: {multipart: {file-field: ''}}}\n",
            "1:38: routes.a.multipart.file-field: '' must not be empty"
        ),
        Wrong(
            "routes: {a: {multipart: {fields: [b]}}}\n",
            "1:34: routes.a.multipart.fields must be a mapping of names to values"
        ),
        Wrong(
            "routes: {a: {multipart: {from-fields: {album: a b}}}}\n",
            "1:47: routes.a.multipart.from-fields.album: expected the name of a field"
        ),
        Wrong(
            "routes: {a: {ordinary: stream}}\n",
            "1:24: routes.a.ordinary: 'stream' is not one of spool, pass"
        ),
        Wrong(
            "routes: {a: {cors: {origins: ['https://a.test', 'https://b.test/']}}}\n",
            "1:49: routes.a.cors.origins: 'https://b.test/' is not \"*\" or an origin as "
                + "browsers send it, such as https://app.example or http://localhost:5173: in lower "
                + "case, without a trailing slash and without the scheme's default port"
        ),
        Wrong(
            "routes: {a: {cors: {origins: ['*', 'https://b.test']}}}\n",
            "1:30: routes.a.cors.origins: \"*\" means all origins and must be the only entry"
        ),
        Wrong(
            "routes: {a: {cors: {origins: '*', credentials: true}}}\n",
            "1:48: routes.a.cors.credentials: 'true': with origins: \"*\", any page could "
                + "upload on behalf of its visitors; list the origins"
        ),
        Wrong(
            "routes: {a: {cors: {expose: '*'}}}\n",
            "1:29: routes.a.cors.expose: '*' is not the name of a field, such as X-Api-Key"
        ),
        Wrong(
            "routes: {a: {ordinary: pass, inspect: {command: /scan}}}\n",
            "1:24: routes.a.ordinary: 'pass': an upload that is not spooled cannot have "
                + "inspect.command, which requires complete content; remove that setting, or use "
                + "ordinary: spool"
        ),
        Wrong(
            "routes: {a: {ordinary: pass, digest: sha-256}}\n",
            "1:24: routes.a.ordinary: 'pass': an upload that is not spooled cannot have digest: "
                + "sha-256, which requires complete content; remove that setting, or use ordinary: "
                + "spool"
        ),
        Wrong(
            "routes: {a: {ordinary: pass, upstream: 'directory:/d'}}\n",
            "1:24: routes.a.ordinary: 'pass': an upload that is not spooled cannot have a directory: "
                + "upstream, which requires complete content; remove that setting, or use ordinary: spool"
        ),
        Wrong(
            "routes: {a: {digest: md5}}\n",
            "1:22: routes.a.digest: 'md5' is not one of none, sha-256, sha-512"
        ),
    ]

    private static let nameForms =
        "the name of a field, except those for connections, framing and uploads (Upload-*)"

    private static let wrongFields = [
        Wrong(
            "routes: {a: {fields: {forward: [Accept, Connection]}}}\n",
            "1:41: routes.a.fields.forward: 'Connection' is not allowed; use \(nameForms)"
        ),
        Wrong(
            "routes: {a: {fields: {strip: Upload-Complete}}}\n",
            "1:30: routes.a.fields.strip: 'Upload-Complete' is not allowed; use \(nameForms)"
        ),
        Wrong(
            "routes: {a: {fields: {set: {Content-Length: 1}}}}\n",
            "1:45: routes.a.fields.set.Content-Length: expected \(nameForms), with a value"
        ),
        Wrong(
            "routes: {a: {fields: {set: {Content_Length: 1}}}}\n",
            "1:45: routes.a.fields.set.Content_Length: expected \(nameForms), with a value"
        ),
        Wrong(
            "routes: {a: {fields: {set: {X-A: \"a\\nb\"}}}}\n",
            "1:34: routes.a.fields.set.X-A: expected \(nameForms), with a value"
        ),
        Wrong(
            "routes: {a: {fields: {add: {}}}}\n",
            "1:23: routes.a.fields.add: unknown setting; \(valid(ofRoute: "fields"))"
        ),
        Wrong(
            "routes: {a: {forwarding: via}}\n",
            "1:26: routes.a.forwarding: 'via' is not one of x-forwarded, forwarded, both, trust, none"
        ),
        Wrong(
            "routes: {a: {credentials: all}}\n",
            "1:27: routes.a.credentials: 'all' is not one of creation, completing, none"
        ),
        Wrong(
            "routes: {a: {credential-fields: [TE]}}\n",
            "1:34: routes.a.credential-fields: 'TE' is not allowed; use \(nameForms)"
        ),
    ]

    private static let wrongYAML = [
        Wrong(
            "spool: &s {}\n",
            "1:8: anchors, aliases and tags are not supported"
        ),
        Wrong(
            "spool:\n  directory: !!str /a\n",
            "2:14: anchors, aliases and tags are not supported"
        ),
        Wrong(
            "spool: *s\n",
            "1:8: anchors, aliases and tags are not supported"
        ),
        Wrong(
            "---\n{}\n---\n{}\n",
            "3:1: unexpected second YAML document; use a single document"
        ),
        Wrong(
            String(repeating: "[", count: 17) + String(repeating: "]", count: 17),
            "1:17: nested too deeply"
        ),
        Wrong(
            String(repeating: "[", count: 100_000),
            "1:17: nested too deeply"
        ),
        Wrong(
            "spool:\n\tdirectory: /a\n",
            "2:1: invalid YAML: found character that cannot start any token; indent with spaces, "
                + "not with tabs"
        ),
        Wrong("spool: {\n", "2:1: invalid YAML: did not find expected node content"),
        Wrong("log-level: \"info\n", "2:1: invalid YAML: found unexpected end of stream"),
        Wrong(
            "log-level: info\nspool: \u{1}\n",
            "2:8: invalid YAML: control characters are not allowed"
        ),
    ]
}
