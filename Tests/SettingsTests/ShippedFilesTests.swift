// The shipped files agree with the program: settings and manual pages, compared as text.

import Foundation
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateJournal
@testable import SpoolgateSettings

@Suite struct ShippedFilesTests {
    private static let repository = URL(filePath: #filePath)
        .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()

    private static func text(_ path: String) throws -> String {
        try String(contentsOf: repository.appending(path: path), encoding: .utf8)
    }

    /// Whether two texts are the same setting: `24h` and `1d` are.
    private static func isSame(_ one: some StringProtocol, _ other: String) -> Bool {
        let duration = DurationText.read(String(one))
        return one == other || duration != nil && duration == DurationText.read(other)
    }

    // MARK: The example settings

    private struct Example {
        var value: String
        var isCommented: Bool
    }

    /// By dotted key, including commented ones.
    private static func examples() throws -> [String: Example] {
        var examples: [String: Example] = [:]
        var path: [(indentation: Int, key: Substring)] = []
        for line in try text("deploy/spoolgate.yaml").split(separator: "\n") {
            // A `#` and a space begin prose, or a key within a commented section.
            guard
                let match = line.wholeMatch(
                    of: /( *)(#?)( *)([a-z][a-z0-9-]*):(?: +(\S+))?(?: +#.*)?/
                ),
                match.2.isEmpty || match.3.isEmpty || match.3 == "  "
            else { continue }
            let indentation = match.1.count + match.3.count
            path.removeAll { $0.indentation >= indentation }
            let key = (path.map(\.key) + [match.4]).joined(separator: ".")
            guard let value = match.5 else {
                path.append((indentation, match.4))
                continue
            }
            #expect(examples[key] == nil, "\(key) stands twice")
            examples[key] = Example(value: String(value), isCommented: !match.2.isEmpty)
        }
        return examples
    }

    @Test(
        "the example settings are the defaults, except for the upstream, which the operator names"
    )
    func exampleIsDefault() throws {
        let text = try Self.text("deploy/spoolgate.yaml")
        #expect(try Settings(text, file: "spoolgate.yaml") == SettingsTests.withoutUpstream)
        let route = try #require(text.firstRange(of: "routes:\n  default:\n"))
        let first = text[route.upperBound...].split(separator: "\n")
            .first { !$0.trimmingPrefix(/\ +/).hasPrefix("# ") }
        #expect(first == "    #upstream: http://127.0.0.1:3000")
    }

    @Test("the example settings name every setting, at its default or after a # if it has none")
    func exampleIsComplete() throws {
        let examples = try Self.examples()
        let table = SettingsTests.withoutUpstream.table
        #expect(Set(examples.keys) == Set(table.map(\.key)))
        for (key, value) in table {
            let example = try #require(examples[key], "\(key) is not in the example")
            #expect(example.isCommented == value.isEmpty, "\(key)")
            if !example.isCommented { #expect(Self.isSame(example.value, value), "\(key)") }
        }
    }

    @Test("the example settings after a # are valid without the #")
    func commentedExamples() throws {
        let text = try Self.text("deploy/spoolgate.yaml")
            .replacing(/(?m)^( *)#((?:  )?[a-z][a-z0-9-]*:)/) { match in "\(match.1)\(match.2)" }
        let settings = try Settings(text, file: "spoolgate.yaml")
        let values = Dictionary(uniqueKeysWithValues: settings.table.map { ($0.key, $0.value) })
        for (key, example) in try Self.examples() {
            #expect(Self.isSame(example.value, try #require(values[key])), "\(key)")
        }
    }

    // MARK: The page of the settings

    @Test("the page of the settings has every setting with its default, and nothing else")
    func settingsPage() throws {
        var section = ""
        var documented: [String: String] = [:]
        var key = ""
        let lines = try Self.text("deploy/man/spoolgate.yaml.5").split(separator: "\n")
        for (index, line) in lines.enumerated() {
            if line.hasPrefix(".Ss ") {
                let name = line.split(separator: " ").last ?? ""
                section = line == ".Ss The daemon" ? "" : "\(name)."
            } else if let item = line.wholeMatch(of: /\.It Ic ([a-z-]+) : .*/) {
                key = (section == "routes." ? "routes.NAME." : section) + item.1
                #expect(documented[key] == nil, "\(key) is documented twice")
                documented[key] = ""
            } else if line.hasPrefix("Default:") {
                let words = line == "Default:" ? lines[index + 1].dropFirst(4) : line.dropFirst(9)
                documented[key] = words.trimmingCharacters(in: .init(charactersIn: " ."))
            }
        }
        let table = Settings().table.map { ($0.key.replacing("default", with: "NAME"), $0.value) }
        #expect(Set(documented.keys) == Set(table.map(\.0)))
        for (key, value) in table where !value.isEmpty {
            let said = try #require(documented[key]).replacing("\\(dq", with: "\"")
            #expect(Self.isSame(said.split(separator: ",")[0], value), "\(key)")
        }
    }

    // MARK: The page of the events

    @Test("the page of the events has every event and every member, and nothing else")
    func eventsPage() throws {
        let page = try Self.text("deploy/man/spoolgate-events.5")
        let kinds = page.matches(of: /(?m)^\.It Li ([a-z]+)$/).map { String($0.1) }
        #expect(kinds == Event.Kind.allCases.map(\.rawValue))
        let members = page.matches(of: /(?m)^\.It Ic ([a-z, -]+)$/)
            .flatMap { $0.1.split(separator: " , ") }.map(String.init)
        var event = Event(.held, of: nil, id: UploadID(high: 1, low: 2))
        (event.route, event.owner, event.method, event.target) = ("a", "b", "PUT", "/c")
        (event.offset, event.length, event.status, event.attempts) = (1, 2, 3, 4)
        (event.reason, event.nextAttempt, event.correlation, event.node) = ("d", .now, "e", "n1")
        guard case .object(let told) = event.json else { return #expect(Bool(false)) }
        #expect(members == told.map(\.name))
    }

    // MARK: The page of the metrics

    @Test(
        "the page of the metrics has every metric with its type, in their order, and nothing else"
    )
    func metricsPage() throws {
        let source = try Self.text("Sources/Gateway/Admin/Admin+Metrics.swift")
        let told = source.matches(of: /(counter|gauge|histogram)\(\s*"([a-z_]+)"/)
            .map { "spoolgate_\($0.2) \($0.1)" }
        let page = try Self.text("deploy/man/spoolgate-metrics.7")
        let rows = page.matches(of: /(?m)^\.It Sy (spoolgate_[a-z_]+) Pq Li ([a-z]+)$/)
            .map { "\($0.1) \($0.2)" }
        #expect(told.count >= 30)
        #expect(rows == told)
    }

    @Test("the alerts and the dashboard use existing metrics")
    func alerts() throws {
        let source = try Self.text("Sources/Gateway/Admin/Admin+Metrics.swift")
        let names = Set(
            source.matches(of: /(?:counter|gauge|histogram)\(\s*"([a-z_]+)"/).map { String($0.1) }
        )
        for path in ["spoolgate.rules.yml", "spoolgate.dashboard.json"] {
            let text = try Self.text("deploy/prometheus/\(path)")
            let asked = text.matches(of: /spoolgate_([a-z_]+)/).map { String($0.1) }
            #expect(asked.count >= 8)
            for name in asked {
                let plain = name.replacing(/_(bucket|sum|count)$/, with: "")
                #expect(names.contains(name) || names.contains(plain), "\(path): \(name)")
            }
        }
    }

    @Test("no text of an alert has a number before a noun, which would be wrong for one")
    func alertTexts() throws {
        let text = try Self.text("deploy/prometheus/spoolgate.rules.yml")
        let wrong = text.matches(of: /\{\{ \$value \}\} [a-z]+/).map { String($0.0) }
        #expect(wrong.isEmpty, "\(wrong)")
    }

    // MARK: The page of the log

    private struct Line: Equatable {
        var level: String
        var keys: Set<String>
    }

    private static func writtenLines() throws -> [String: Line] {
        var lines: [String: Line] = [:]
        let source = try ["Log", "Log+WebServer"].map {
            try text("Sources/Gateway/Journal/\($0).swift")
        }
        .joined()
        for call in source.matches(of: /write\(\s*\.([a-z]+),\s*"([^"]+)"/) {
            let metadata = source[call.range.upperBound...].prefix(while: { $0 != "}" })
            let keys = metadata.matches(of: #/"([a-z-]+)": /#).map { String($0.1) }
            lines[String(call.2)] = Line(level: String(call.1), keys: Set(keys))
        }
        #expect(lines.count == source.matches(of: #/[^c] write\(/#).count)
        return lines
    }

    @Test("the page of the program has the code of every problem document, and no other")
    func problemCodes() throws {
        let folder = "Sources/Base/UploadProtocol/Refusals"
        let names = ["Capacity", "Digest", "Gateway", "Protocol", "Tus"].map {
            "\(folder)/Refusal+\($0).swift"
        }
        let source = try (names + ["Sources/Gateway/FastCGIFront/RequestParameters.swift"])
            .map { try Self.text($0) }.joined()
        let codes = source.matches(of: /code: "([a-z-]+)"/).map { String($0.1) }
        let page = try Self.text("deploy/man/spoolgate.8")
        let told = page.matches(of: /It Li ([a-z-]+) Pq/).map { String($0.1) }
        #expect(codes.count >= 50)
        #expect(told == Set(codes).sorted())
    }

    @Test("the page of the log has every line with its level and its keys, and nothing else")
    func logPage() throws {
        var documented: [String: Line] = [:]
        var message = ""
        let lines = try Self.text("deploy/man/spoolgate-log.5").split(separator: "\n")
        for (index, line) in lines.enumerated() {
            if let item = line.wholeMatch(of: /\.It Sy (.+) Pq Li ([a-z]+)/) {
                message = String(item.1)
                #expect(documented[message] == nil, "\(message) is documented twice")
                documented[message] = Line(level: String(item.2), keys: [])
            } else if line == "Keys:" {
                let words = lines[index + 1].split(separator: " ").dropFirst()
                documented[message]?.keys = Set(words.map(String.init)).subtracting([",", "."])
            }
        }
        #expect(documented == (try Self.writtenLines()))
    }

    // MARK: Versions

    @Test("one page of each program names the interop versions, and names the supported ones")
    func versions() throws {
        let newest = "\(Dialect.versions.upperBound)"
        let typed = [
            "deploy/man/spoolgate-upload.1": "none ;\nthe default is \(newest).",
            "deploy/man/spoolgate.8": "interop version \(newest),",
        ]
        for page in try Self.pages() {
            let text = try Self.text(page)
            let ranges = text.matches(of: /\b([0-9]+) to ([0-9]+)\b/)
                .filter { $0.1 == "\(Dialect.versions.lowerBound)" }.map(\.2)
            #expect(ranges.isEmpty == (typed[page] == nil), "\(page): \(ranges)")
            #expect(ranges.allSatisfy { $0 == newest }, "\(page): \(ranges)")
            if let example = typed[page] { #expect(text.contains(example), "\(page)") }
        }
    }

    /// The paths of all pages: the manual, and the Markdown of the root and `docs`.
    private static func pages() throws -> [String] {
        try ["", "docs/", "docs/decisions/", "deploy/man/"].flatMap { folder in
            try FileManager.default.contentsOfDirectory(atPath: repository.path() + folder)
                .filter { $0.hasSuffix(".md") || folder == "deploy/man/" }.map { folder + $0 }
        }.filter { $0 != "CHANGELOG.md" }
    }
}
