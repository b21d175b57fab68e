// What in nginx's location would break uploads, by the files as they stand.
//
// Pure. It complains of what is known to break or slow uploads, and of nothing else.

import SpoolgateTextFormats

extension NginxPlace {
    /// One directive, and which of its values are right.
    private struct Rule: Sendable {
        var name: String
        /// nginx's own value where it is not set.
        var standard: String
        var level: Finding.Level
        var mend: String
        var isRight: @Sendable (String) -> Bool
    }

    private static let rules = [
        Rule(
            name: "fastcgi_request_buffering",
            standard: "on",
            level: .failure,
            mend: Mend.buffering
        ) { $0 == "off" },
        Rule(
            name: "client_max_body_size",
            standard: "1m",
            level: .failure,
            mend: Mend.size
        ) { size($0) == 0 },
        Rule(
            name: "fastcgi_intercept_errors",
            standard: "off",
            level: .failure,
            mend: Mend.errors
        ) { $0 == "off" },
        Rule(
            name: "client_body_buffer_size",
            standard: "16k",
            level: .warning,
            mend: Mend.window
        ) { size($0) >= 1 << 20 },
        Rule(
            name: "client_body_timeout",
            standard: "60s",
            level: .warning,
            mend: Mend.gap
        ) { seconds($0) >= 60 },
    ]

    /// What is wrong; empty where nothing is.
    var faults: [Finding] {
        var found: [Finding] = []
        for rule in Self.rules {
            let directive = value(of: rule.name)
            let value = directive?.arguments.first ?? rule.standard
            guard !rule.isRight(value) else { continue }
            let place =
                directive.map { "'\($0.text)' at \($0.place)" }
                ?? "nginx's own '\(rule.name) \(rule.standard);' is in force at \(location.place)"
            found.append(Finding(rule.level, "nginx", place, mends: [rule.mend]))
        }
        if value(of: "fastcgi_param", "REQUEST_METHOD") == nil {
            found.append(
                .failure("nginx", "no parameters are passed at \(location.place)", [Mend.location])
            )
        }
        return found
    }

    /// Where the directive of a mend stands now, or where it belongs.
    func place(of mend: String) -> String? {
        let words = Mend.directive(of: mend)
        guard let name = words.first, name.contains("_") || name == "include" else { return nil }
        if name != "include", let directive = value(of: name, words.dropFirst().first) {
            return directive.text == mend
                ? "(is there already, at \(directive.place): look at what stands in front)"
                : "(in place of \(directive.text) at \(directive.place))"
        }
        let path = location.arguments.joined(separator: " ")
        return "(location \(path), \(location.place))"
    }

    private static func size(_ text: String) -> Int64 {
        amount(text.lowercased(), ["k": 1 << 10, "m": 1 << 20, "g": 1 << 30])
    }

    private static func seconds(_ text: String) -> Int64 {
        text.hasSuffix("ms") ? 0 : amount(text, ["s": 1, "m": 60, "h": 3_600, "d": 86_400])
    }

    /// Digits, and perhaps a unit; 0 for anything else.
    private static func amount(_ text: String, _ units: [Character: Int64]) -> Int64 {
        guard let last = text.last, let unit = units[last] else { return Int64(digits: text) ?? 0 }
        return (Int64(digits: text.dropLast()) ?? 0) * unit
    }
}
