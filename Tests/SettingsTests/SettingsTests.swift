// The settings file: accepted values, and each error's place and message.

import Foundation
import HTTPTypes
import Logging
import SpoolgateCurl
import SpoolgatePosix
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateSettings

@Suite struct SettingsTests {
    static var withoutUpstream: Settings {
        var settings = Settings()
        settings.routes["default"]?.upstream.targets = []
        return settings
    }

    @Test(
        "an empty text leaves every default, and names no upstream",
        arguments: [
            "", "\n", "# nothing\n", "---\n", "{}", "~", "spool:\n", "routes: {default: }\n",
            "spool: {directory: ~}\nlisten: null\n", "\u{FEFF}# after a byte order mark\n",
        ]
    )
    func empty(text: String) throws {
        let settings = try Settings(text, file: "f")
        #expect(settings == Self.withoutUpstream)
        #expect(
            settings.lack
                == "routes.default.upstream: not set; set it to the application that receives the "
                + "uploads, for example upstream: http://127.0.0.1:3000"
        )
    }

    @Test("a file has the routes that it names, and each needs an upstream")
    func namedRoutes() throws {
        let named = try Settings("routes: {a: {upstream: \"unix:/b\"}}", file: "f")
        #expect(Array(named.routes.keys) == ["a"])
        #expect(named.lack == nil)
        let text = "routes: {c: {}, b: {upstream: \"unix:/b\"}, a: {reply: accepted}}"
        let lack = try #require(try Settings(text, file: "f").lack)
        #expect(lack.hasPrefix("routes.a.upstream, routes.c.upstream: not set; "))
        #expect(Settings().lack == nil)
    }

    @Test("every setting is accepted")
    func everything() throws {
        let text = """
            listen: unix:/tmp/s.sock
            socket-mode: "0600"
            socket-group: web
            log-level: debug
            spool: {directory: /srv/spool, reserve: 1GiB, quota: 2TiB, maximum-uploads: 3}
            threads: {maximum: 2}
            clients: {maximum-concurrent: 5, maximum-uploads: 6}
            timeouts: {stall: 1500ms, drain: 0s, in-use: 2m}
            delivery: {maximum-concurrent: 3}
            interim: {heartbeat: 0s}
            routes:
              default: {upstream: "http://127.0.0.1:81/base"}
              a:
                upstream: [https://b.test, "unix:/b"]
                anonymous: refuse
                rfc-clients: true
                spool-receive: off
                upload-resources: /u/
                limits:
                  {max-size: 9B, min-size: 0, max-append-size: 8B, max-age: 2d}
                timeouts: {connect: 1s, stall: 2s, response: 3s}
                reuse: always
                tls: {ca: /ca, certificate: /c, key: /k}
                honours-idempotency-key: true
                form: path
                multipart:
                  {file-field: f, fields: {a: b, c: ""}, from-fields: {d: X-D}}
                path: {directory: /d, key-file: /k, key-id: i, retention: 2h}
                s3:
                  {region: eu-1, credentials: /s, style: virtual-host, fields: {X-Amz-Acl: private}}
                digest: sha-512
                fields: {forward: Accept, strip: [X-S, X_T], set: {X-U: "v w"}}
                forwarding: both
                credentials: completing
                credential-fields: [X-Key]
                cors:
                  {origins: ["https://a.test", "http://b.test:81"], credentials: true,
                  expose: [X-B, X-C]}
            """
        var expected = Settings()
        expected.listen = .unix(path: "/tmp/s.sock", mode: 0o600, group: "web")
        expected.logLevel = .debug
        expected.spoolDirectory = "/srv/spool"
        expected.spoolReserve = 1 << 30
        expected.spoolQuota = 2 << 40
        expected.maximumThreads = 2
        expected.maximumUploads = 3
        expected.clients.maximumConcurrent = 5
        expected.clients.maximumUploads = 6
        expected.stallTimeout = .milliseconds(1500)
        expected.drainTimeout = .zero
        expected.inUseTimeout = .seconds(120)
        expected.maximumDeliveries = 3
        expected.interim.progressInterval = nil
        expected.interim.heartbeat = .zero
        expected.routes["default"]?.upstream.targets = [.http(base: "http://127.0.0.1:81/base")]
        var route = RouteSettings()
        route.upstream = UpstreamSettings(
            targets: [.http(base: "https://b.test"), .unix(path: "/b")],
            connectTimeout: .seconds(1),
            stallTimeout: .seconds(2),
            responseTimeout: .seconds(3)
        )
        (route.upstream.tls.authorities, route.upstream.tls.certificate) = ("/ca", "/c")
        route.upstream.tls.key = "/k"
        route.upstream.reuse = .always
        route.upstream.bucket.region = "eu-1"
        route.upstream.bucket.credentials = .file("/s")
        route.upstream.bucket.style = .virtualHost
        route.upstream.bucket.fields = [HTTPField(name: .made("X-Amz-Acl"), value: "private")]
        route.crossOrigin.origins = ["https://a.test", "http://b.test:81"]
        route.crossOrigin.allowsCredentials = true
        route.crossOrigin.exposedFields = [.made("X-B"), .made("X-C")]
        route.anonymous = .refuse
        route.hasRFCClients = true
        route.spoolReceive = .off
        route.uploadResources = "/u/"
        route.limits = UploadLimits(
            maxSize: 9,
            minSize: 0,
            maxAppendSize: 8,
            maxAge: 2 * 86_400
        )
        route.honoursIdempotencyKey = true
        route.form = .path
        route.multipart = MultipartSettings(
            fileField: "f",
            fields: [ConstantField(name: "a", value: "b"), ConstantField(name: "c", value: "")],
            fromFields: [CopiedField(name: "d", source: try #require(.init("X-D")))]
        )
        route.path = PathSettings(
            directory: "/d",
            keyFile: "/k",
            keyID: "i",
            retention: .seconds(7200)
        )
        route.digest = .sha512
        route.fields.forward = [.accept]
        route.fields.strip = [try #require(.init("X-S")), try #require(.init("X-T"))]
        route.fields.set = [HTTPField(name: try #require(.init("X-U")), value: "v w")]
        route.fields.forwarding = .both
        route.fields.credentials = .completing
        route.fields.credentialFields += [try #require(.init("X-Key"))]
        expected.routes["a"] = route
        #expect(try Settings(text, file: "f") == expected)
    }

    @Test("a change that needs a restart is reported")
    func restart() throws {
        let text = """
            listen: systemd
            log-level: debug
            log-queries: true
            spool: {directory: /s, reserve: 1B, quota: 1B, maximum-uploads: 1}
            threads: {maximum: 2}
            timeouts: {stall: 1s, drain: 1s, in-use: 1s}
            delivery: {maximum-concurrent: 1}
            routes: {default: {reply: accepted}}
            """
        let changed = try Settings(text, file: "f")
        #expect(
            changed.needingRestart(since: Settings()) == [
                "listen", "socket-mode", "log-level", "log-queries", "spool.directory",
                "spool.quota", "threads.maximum", "timeouts.stall", "timeouts.drain",
            ]
        )
        #expect(changed.needingRestart(since: changed) == [])
    }

    @Test("a setting of an earlier version has no effect, and its line is named")
    func removed() throws {
        let text = "threads:\n  maximum-waiting: many\n  maximum: 2\n"
        let settings = try Settings(text, file: "f")
        #expect(settings.maximumThreads == 2)
        #expect(
            settings.ignored.map(\.description) == [
                "f:2:20: threads.maximum-waiting: this setting was removed and is ignored: half of "
                    + "threads.maximum may wait; remove the line"
            ]
        )
        for (key, replacement) in Settings.removed {
            let words = (key.hasPrefix(".") ? "routes.a" : "") + key
            let line = words.split(separator: ".").reversed().reduce("x") { "{\($1): \($0)}" }
            let ignored = try Settings(line, file: "f").ignored.map(\.description)
            #expect(ignored.count == 1 && ignored[0].contains(": \(replacement); remove"), "\(key)")
        }
        #expect(try Settings("threads: {maximum: 2}", file: "f").ignored == [])
    }

    @Test("a default is limited by the other settings")
    func bounded() throws {
        let text = "routes: {default: {queue: {maximum-backoff: 3s}}}"
        let queue = try #require(try Settings(text, file: "f").routes["default"]?.queue)
        #expect(queue.minimumBackoff == .seconds(3))
    }

    @Test("the output of `check` for a setting is valid in a file")
    func tableIsSettings() throws {
        var text = ""
        var path: [Substring] = []
        for (key, value) in Settings().table where !value.isEmpty {
            let words = key.split(separator: ".")
            for (depth, word) in words.dropLast().enumerated()
            where path.count <= depth || path[...depth] != words[...depth] {
                text += String(repeating: "  ", count: depth) + "\(word):\n"
            }
            path = words.dropLast()
            text += String(repeating: "  ", count: path.count) + "\(words[path.count]): \(value)\n"
        }
        #expect(try Settings(text, file: "f") == Settings())
    }

    @Test(
        "a path with spaces is accepted, and printed in valid form",
        arguments: ["directory:/x y/in", "unix:/x y/a: b #c"]
    )
    func spaces(target: String) throws {
        let text = """
            spool: {directory: "/x y/spool"}
            routes: {default: {upstream: "\(target)", authorize: {url: "unix:/x y/a.sock:/may"}}}
            """
        let settings = try Settings(text, file: "f")
        #expect(settings.spoolDirectory == "/x y/spool")
        let printed = settings.table.first { $0.key == "routes.default.upstream" }
        #expect(printed?.value == "\"\(target)\"")
        #expect(settings.routes["default"]?.upstream.targets == [try UpstreamTarget(target)])
    }

    @Test("several targets are printed as a valid list")
    func tableOfTargets() throws {
        var settings = Settings()
        settings.routes["default"]?.upstream.targets = [
            .http(base: "http://[::1]:80/a,b"), .unix(path: "/quoted\"\\"),
        ]
        let list = try #require(settings.table.first { $0.key == "routes.default.upstream" }?.value)
        #expect(list == #"["http://[::1]:80/a,b", "unix:/quoted\"\\"]"#)
        #expect(try Settings("routes: {default: {upstream: \(list)}}", file: "f") == settings)
    }

    /// An invalid text and its error: `line:column: sentence`.
    struct Wrong: Sendable, CustomTestStringConvertible {
        var text: String
        var fault: String
        var testDescription: String { fault }

        init(_ text: String, _ fault: String) {
            self.text = text
            self.fault = fault
        }
    }

    @Test("an invalid text is refused with its place and the valid form", arguments: wrongTexts)
    func refused(_ wrong: Wrong) {
        do throws(SettingsError) {
            let settings = try Settings(wrong.text, file: "f")
            Issue.record("taken: \(settings)")
        } catch {
            #expect(error.description == "f:\(wrong.fault)")
        }
    }

    @Test("an unreadable file is named with the reason", arguments: [false, true])
    func unreadable(isHuge: Bool) throws {
        let path = "\(NSTemporaryDirectory())/settings-\(UInt64.random(in: 0...(.max))).yaml"
        if isHuge { try Data(repeating: 0x23, count: 1 << 20 | 1).write(to: URL(filePath: path)) }
        defer { unlink(path) }
        let reason =
            isHuge ? "read \(path): File too large" : "open \(path): No such file or directory"
        #expect(throws: SettingsFault.self) { try Settings.load(path) }
        do throws(SettingsFault) { _ = try Settings.load(path) } catch {
            #expect(error.description == "cannot read the settings: \(reason)")
        }
    }

    @Test("bytes that are not UTF-8 are refused with their place")
    func notUTF8() throws {
        let path = "\(NSTemporaryDirectory())/settings-\(UInt64.random(in: 0...(.max))).yaml"
        defer { unlink(path) }
        try Data("# fine: \u{E9}\nspool:\n  directory: /srv/b".utf8 + [0xFC] + "ro\n".utf8)
            .write(to: URL(filePath: path))
        do throws(SettingsFault) {
            _ = try Settings.load(path)
            Issue.record("taken")
        } catch {
            #expect(error.description == "\(path):3:20: the file is not UTF-8; save it as UTF-8")
        }
    }

    @Test("a file is read like its text")
    func load() throws {
        let path = "\(NSTemporaryDirectory())/settings-\(UInt64.random(in: 0...(.max))).yaml"
        defer { unlink(path) }
        try Data("log-level: error\n".utf8).write(to: URL(filePath: path))
        #expect(try Settings.load(path).logLevel == .error)
    }
}
