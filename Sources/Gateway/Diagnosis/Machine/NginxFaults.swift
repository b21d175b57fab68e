// Mistakes in nginx's location that break or slow uploads.
//
// Pure. Reports only directives known to be harmful.

import Glibc
import SpoolgateTextFormats

extension NginxDirective {
    /// Returns whether these words have the same effect as `other`.
    ///
    /// nginx ignores quotes and the case of `on` and `off`.
    func hasSameEffect(as other: [String]) -> Bool {
        func plain(_ word: String) -> String {
            let lower = word.lowercased()
            return ["on", "off"].contains(lower) ? lower : word
        }
        return words.map(plain) == other.map(plain)
    }
}

extension NginxPlace {
    private struct Rule: Sendable {
        var name: String
        /// The value that nginx uses if the directive is missing.
        var standard: String
        var level: Finding.Level
        var effect: String
        var fix: String
        var isRight: @Sendable (String) -> Bool
    }

    private static let rules = [
        Rule(
            name: "fastcgi_request_buffering",
            standard: "on",
            level: .failure,
            effect: "nginx buffers uploads, and interrupted ones start again",
            fix: Fix.buffering
        ) { $0.lowercased() == "off" },
        Rule(
            name: "client_max_body_size",
            standard: "1m",
            level: .failure,
            effect: "nginx refuses larger content",
            fix: Fix.size
        ) { size($0) == 0 },
        Rule(
            name: "fastcgi_intercept_errors",
            standard: "off",
            level: .failure,
            effect: "nginx replaces the gateway's error responses",
            fix: Fix.errors
        ) { $0.lowercased() == "off" },
        Rule(
            name: "client_body_buffer_size",
            standard: "16k",
            level: .warning,
            effect: "uploads over HTTP/2 are slow",
            fix: Fix.window
        ) { size($0) >= 1 << 20 },
        Rule(
            name: "client_body_timeout",
            standard: "60s",
            level: .warning,
            effect: "nginx closes the connections of clients that pause longer",
            fix: Fix.gap
        ) { seconds($0) >= 60 },
    ]

    var faults: [Finding] {
        var found: [Finding] = []
        for rule in Self.rules {
            let directive = value(of: rule.name)
            // A time may consist of several words.
            let value = directive?.arguments.joined(separator: " ") ?? rule.standard
            guard !rule.isRight(value) else { continue }
            let place =
                directive.map { "'\($0.text)' at \($0.place)" }
                ?? "nginx's default '\(rule.name) \(rule.standard);' applies at \(location.place)"
            found.append(
                Finding(rule.level, "nginx", "\(place): \(rule.effect)", fixes: [rule.fix])
            )
        }
        if let early = earlyRead { found.append(early) }
        if value(of: "fastcgi_param", "REQUEST_METHOD") == nil {
            found.append(
                .failure(
                    "nginx",
                    "the location at \(location.place) passes no FastCGI parameters",
                    [Fix.location]
                )
            )
        }
        return found
    }

    /// The finding if nginx buffers content before it chooses a location (nginx master of August 2026).
    ///
    /// nginx does so if any argument of `client_body_early_read` is neither empty nor 0.
    private var earlyRead: Finding? {
        guard let directive = value(of: "client_body_early_read") else { return nil }
        let conditions = directive.arguments.filter { !["", "0"].contains($0) }
        guard !conditions.isEmpty else { return nil }
        let isAlways = conditions.contains { !$0.contains("$") }
        return Finding(
            isAlways ? .failure : .warning,
            "nginx",
            "'\(directive.text)' at \(directive.place): nginx buffers content before it chooses the location"
                + (isAlways ? "" : ", if the condition applies to uploads"),
            fixes: [Fix.lateBody]
        )
    }

    /// Returns the place in nginx's files for a fix; nil if the fix is not a directive for this location.
    func place(of fix: String) -> String? {
        guard let directive = Fix.directive(fix), let name = directive.first else { return nil }
        if let there = place(ofSame: directive) {
            return "(already present at \(there): check the proxies in front)"
        }
        switch name {
        // This directive belongs in the configuration of a proxy in front.
        case "proxy_request_buffering": return nil
        case "location": return "(in place of \(location.text) at \(location.place))"
        case "listen": return "(in the server block at \(server?.place ?? location.place))"
        default: break
        }
        if name != "include", let present = value(of: name, Fix.parameter(of: directive)) {
            return "(in place of \(present.text) at \(present.place))"
        }
        let path = location.arguments.joined(separator: " ")
        return "(in location \(path) at \(location.place))"
    }

    private var server: NginxDirective? { around.first { $0.name == "server" } }

    /// Returns the place of a directive in effect here that has the same effect as `words`, if any.
    func place(ofSame words: [String]) -> String? {
        guard let name = words.first else { return nil }
        if name == "location" { return location.words == words ? location.place : nil }
        if name == "listen" {
            return server?.block?.first { directive in
                directive.name == "http2" && !directive.saysOff
                    || directive.name == "listen" && directive.arguments.contains("ssl")
                        && directive.arguments.contains("http2")
            }?.place
        }
        if name == "include" {
            let pattern = words.last?.split(separator: "/").last.map(String.init) ?? ""
            return (location.block ?? []).first { directive in
                let file = directive.file.split(separator: "/").last.map(String.init) ?? ""
                return fnmatch(pattern, file, 0) == 0
            }?.place
        }
        guard let present = value(of: name, Fix.parameter(of: words)) else { return nil }
        // Any value that the operator chose is as good as the proposed one.
        let isOwn = name == "auth_basic_user_file" || Fix.parameter(of: words) == "SPOOLGATE_OWNER"
        if isOwn || name == "auth_basic" && !present.saysOff { return present.place }
        return present.hasSameEffect(as: words) ? present.place : nil
    }

    private static func size(_ text: String) -> Int64 {
        amount(text.lowercased(), ["k": 1 << 10, "m": 1 << 20, "g": 1 << 30])
    }

    /// Parses a time such as `60`, `1m 30s` or `60000ms`, and returns whole seconds, or 0 if the text is invalid.
    private static func seconds(_ text: String) -> Int64 {
        var milliseconds: Int64 = 0
        let parts = text.lowercased().matches(of: /(\d+) *(ms|s|m|h|d|w)?/)
        for part in parts {
            let units: [Substring: Int64] = [
                "ms": 1, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000,
            ]
            let (product, overflow) = (Int64(part.1) ?? 0)
                .multipliedReportingOverflow(by: units[part.2 ?? "s"] ?? 1_000)
            milliseconds += overflow ? 0 : min(product, .max / 1_000)
        }
        return milliseconds / 1_000
    }

    /// Parses digits with an optional unit; returns 0 if the text is invalid.
    private static func amount(_ text: String, _ units: [Character: Int64]) -> Int64 {
        guard let last = text.last, let unit = units[last] else { return Int64(digits: text) ?? 0 }
        return (Int64(digits: text.dropLast()) ?? 0) * unit
    }
}
