// Settings from environment variables: effect, precedence over the file, and errors.

import Foundation
import SpoolgateUpstream
import Testing

@testable import SpoolgateSettings

@Suite("Settings from the environment")
struct VariableTests {
    /// A non-default and an invalid value of each variable.
    private static let values: [String: (right: String, wrong: String)] = [
        "SPOOLGATE_UPSTREAM": ("[http://a:1, \"unix:/b\"]", "ftp://a"),
        "SPOOLGATE_ANONYMOUS": ("refuse", "perhaps"),
        "SPOOLGATE_AUTHORIZE_URL": ("http://127.0.0.1:9/ask", "/ask"),
        "SPOOLGATE_MAX_SIZE": ("2GiB", "2 films"),
        "SPOOLGATE_REPLY": ("accepted", "never"),
        "SPOOLGATE_FORM": ("multipart", "oval"),
        "SPOOLGATE_CORS_ORIGINS": ("[https://a.example, http://b.example:81]", "[https://a/b]"),
        "SPOOLGATE_LISTEN": ("unix:/tmp/s.sock", "everywhere"),
        "SPOOLGATE_SOCKET_MODE": ("0600", "rw"),
        "SPOOLGATE_SOCKET_GROUP": ("web", "''"),
        "SPOOLGATE_ADMIN_LISTEN": ("unix:/tmp/a.sock", "tcp:127.0.0.1:1"),
        "SPOOLGATE_NODE": ("n1", "Node 1"),
        "SPOOLGATE_SPOOL_DIRECTORY": ("/srv/spool", "spool"),
        "SPOOLGATE_SPOOL_RESERVE": ("1GiB", "-1"),
        "SPOOLGATE_SPOOL_QUOTA": ("2TiB", "[1, 2]"),
        "SPOOLGATE_THREADS_MAXIMUM": ("100", "0"),
        "SPOOLGATE_LOG_LEVEL": ("debug", "loud"),
        "SPOOLGATE_EVENTS_TO": ("journal", "events.log"),
    ]

    /// The settings from these variables and a file's text, if any.
    private static func settings(
        _ variables: [String: String],
        beside text: String? = nil
    ) throws -> Settings {
        guard let text else { return try Settings.load(nil) { variables[$0] } }
        let path = "\(NSTemporaryDirectory())/settings-\(UInt64.random(in: 0...(.max))).yaml"
        defer { unlink(path) }
        try text.write(toFile: path, atomically: true, encoding: .utf8)
        return try Settings.load(path) { variables[$0] }
    }

    /// The error, without the file's path.
    private static func fault(_ variables: [String: String], beside text: String? = nil) -> String {
        do {
            return "taken: \(try settings(variables, beside: text))"
        } catch {
            return "\(error)".replacing(#/^\/\S*?yaml/#, with: "f")
        }
    }

    private static func file(_ key: String, _ value: String) -> String {
        let parts = key.split(separator: ".")
        return parts.enumerated().map { depth, part in
            "\n" + String(repeating: " ", count: depth) + "\(part):"
        }.joined() + " \(value)\n"
    }

    private static func table(_ settings: Settings) -> [String] {
        settings.table.map { "\($0.key): \($0.value)" }
    }

    @Test(
        "each variable has the effect of the same text in a file",
        arguments: SettingsVariable.all
    )
    func taken(variable: SettingsVariable) throws {
        let (right, _) = try #require(Self.values[variable.name])
        let given = try Self.settings([variable.name: right])
        let text = Self.file(variable.key, right)
        #expect(Self.table(given) == Self.table(try Settings(text, file: "f")))
        #expect(Self.table(given) != Self.table(try Settings("", file: "f")))
        #expect(given.variables == [variable])
    }

    @Test(
        "a variable overrides the file, and leaves its other settings",
        arguments: SettingsVariable.all
    )
    func wins(variable: SettingsVariable) throws {
        let (right, wrong) = try #require(Self.values[variable.name])
        let alone = try Self.settings([variable.name: right])
        // The file's value for the same setting is not read.
        let text = Self.file(variable.key, wrong) + "delivery: {maximum-concurrent: 3}\n"
        let both = try Self.settings([variable.name: right], beside: text)
        #expect(both.maximumDeliveries == 3)
        var expected = alone
        expected.maximumDeliveries = 3
        #expect(both == expected)
    }

    @Test(
        "an invalid value is refused in the words for a file, with the variable's name",
        arguments: SettingsVariable.all
    )
    func refused(variable: SettingsVariable) throws {
        let (_, wrong) = try #require(Self.values[variable.name])
        for value in [wrong, "{a: b}", "[[a]]"] {
            let inFile = Self.fault([:], beside: Self.file(variable.key, value))
            let reason = inFile.replacing(#/^f:\d+:\d+: /#, with: "")
            #expect(reason.hasPrefix("\(variable.key): ") && reason != inFile, "\(inFile)")
            #expect(Self.fault([variable.name: value]) == "\(variable.name): \(reason)")
        }
        let texts = [
            ("[", "invalid YAML: did not find expected node content"),
            ("*", "invalid YAML: did not find expected alphabetic or numeric character"),
            ("&a b", "anchors, aliases and tags are not supported"),
            ("a\n--- b", "unexpected second YAML document; use a single document"),
            ("\u{FFFD}", "the value is not UTF-8"),
        ]
        for (text, reason) in texts {
            #expect(Self.fault([variable.name: text]) == "\(variable.name): \(reason)")
        }
    }

    @Test("an empty variable is unset, and only variables of the table are read")
    func unset() throws {
        var asked: [String] = []
        for text in ["", " ", "~", "null", "# nothing", "---"] {
            let settings = try Settings.load(nil) { name in
                asked.append(name)
                return text
            }
            #expect(settings == Settings(), "'\(text)'")
        }
        #expect(Set(asked) == Set(SettingsVariable.all.map(\.name)))
        #expect(SettingsVariable.all.count == Set(asked).count)
    }

    @Test("the environment alone is enough, and an upstream must be named")
    func alone() throws {
        let settings = try Self.settings(["SPOOLGATE_LOG_LEVEL": "debug"])
        #expect(settings.routes["default"]?.upstream.targets.isEmpty == true)
        #expect(
            settings.lack
                == "routes.default.upstream: not set; set it to the application that receives the "
                + "uploads, for example upstream: http://127.0.0.1:3000 or "
                + "SPOOLGATE_UPSTREAM=http://127.0.0.1:3000"
        )
        let named = try Self.settings(["SPOOLGATE_UPSTREAM": "http://a:1"])
        #expect(named.lack == nil)
        #expect(named.routes["default"]?.upstream.targets == [.http(base: "http://a:1")])
    }

    @Test("a route's variables are the default route's, which is created if the file has none")
    func otherRoutes() throws {
        let text = "routes: {a: {upstream: http://a:1}}"
        let both = try Self.settings(["SPOOLGATE_UPSTREAM": "http://b:1"], beside: text)
        #expect(both.routes.keys.sorted() == ["a", "default"])
        #expect(both.routes["a"]?.upstream.targets == [.http(base: "http://a:1")])
        let daemon = try Self.settings(["SPOOLGATE_NODE": "n1"], beside: text)
        #expect(daemon.routes.keys.sorted() == ["a"])
    }

    @Test(
        "contradictory settings are refused with their place, in the file or in a variable"
    )
    func contradictions() {
        let reply =
            "reply: accepted requires promise: power-cut, because an accepted upload must survive a power failure"
        #expect(
            Self.fault(
                ["SPOOLGATE_REPLY": "accepted"],
                beside: "routes: {default: {upstream: http://a:1, promise: process}}"
            ) == "f:1:51: routes.default.promise: 'process': \(reply)"
        )
        #expect(
            Self.fault(["SPOOLGATE_FORM": "path", "SPOOLGATE_UPSTREAM": "http://a:1"])
                == "SPOOLGATE_FORM: routes.default.form: 'path': it requires path.directory and path.key-file"
        )
    }

    @Test(
        "the page of the settings has every variable with its setting, in their order, and no other"
    )
    func page() throws {
        let repository = URL(filePath: #filePath)
            .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
        let page = try String(
            contentsOf: repository.appending(path: "deploy/man/spoolgate.yaml.5"),
            encoding: .utf8
        )
        let section = try #require(page.components(separatedBy: ".Sh ENVIRONMENT\n").last)
            .components(separatedBy: "\n.Sh ")[0]
        let rows = section.matches(of: /\.It Ev (\w+)\n\.Ic ([a-z.-]+)\n/)
            .map { "\($0.1) \($0.2)" }
        #expect(rows == SettingsVariable.all.map { "\($0.name) \($0.key)" })
        #expect(section.matches(of: /\.It Ev/).count == rows.count)
    }
}
