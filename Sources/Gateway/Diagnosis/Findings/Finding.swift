// Findings of a check and their output: aligned lines for people, JSON for programs.
//
// Invariant: each warning and each failure names its fix.

import SpoolgatePosix
package import SpoolgateTextFormats

/// The result of one check.
package struct Finding: Sendable, Equatable {
    /// The severity of a finding.
    package enum Level: String, Sendable, CaseIterable {
        case ok
        /// Uploads work, but slowly or with some risk.
        case warning = "warn"
        /// Uploads fail or cannot be resumed.
        case failure = "fail"
        /// The check did not run; the text says why.
        case skipped = "skip"

        var shown: String {
            switch self {
            case .ok, .warning: rawValue
            case .failure: "FAIL"
            case .skipped: "-"
            }
        }
    }

    /// The name of the check, a word of at most eleven letters.
    package var name: String
    package var level: Level
    /// The observation, without a final period.
    package var text: String
    /// The ways to fix the problem, each a directive, a setting or a command; empty only if there is no problem.
    package var fixes: [String]

    /// Creates a finding.
    package init(_ level: Level, _ name: String, _ text: String, fixes: [String] = []) {
        (self.level, self.name, self.text, self.fixes) = (level, name, text, fixes)
    }

    /// Creates a finding that reports no problem.
    package static func ok(_ name: String, _ text: String) -> Finding { .init(.ok, name, text) }

    /// Creates a finding for a skipped check; `text` says why.
    package static func skipped(_ name: String, _ text: String) -> Finding {
        .init(.skipped, name, text)
    }

    static func warning(_ name: String, _ text: String, _ fixes: [String]) -> Finding {
        .init(.warning, name, text, fixes: fixes)
    }

    static func failure(_ name: String, _ text: String, _ fixes: [String]) -> Finding {
        .init(.failure, name, text, fixes: fixes)
    }

    /// The finding for people: a line such as ` FAIL  streaming   …`, then a line for each fix, with control
    /// characters replaced.
    package var line: String {
        let head = " \(level.shown.padded(toColumns: 5)) \(name.padded(toColumns: 11)) "
        let indent = String(repeating: " ", count: head.count)
        return ([head + text.forTerminal] + fixes.map { indent + $0.forTerminal })
            .joined(separator: "\n")
    }

    package var json: JSON {
        .versioned([
            ("check", .string(name)), ("level", .string(level.rawValue)),
            ("text", .string(text)), ("fix", .texts(fixes)),
        ])
    }
}

/// The number of warnings and failures among the findings.
package struct FindingCount: Sendable, Equatable {
    package private(set) var failures = 0
    package private(set) var warnings = 0

    /// Creates counts of zero.
    package init() {}

    /// Counts a finding if it is a warning or a failure.
    package mutating func count(_ finding: Finding) {
        switch finding.level {
        case .failure: failures += 1
        case .warning: warnings += 1
        case .ok, .skipped: break
        }
    }

    /// The counts as shown to people, such as `2 failures, 1 warning.`.
    package var line: String {
        func counted(_ count: Int, _ word: String) -> String {
            count == 0 ? "no \(word)s" : "\(count, of: word)"
        }
        return "\(counted(failures, "failure")), \(counted(warnings, "warning"))."
    }

    package var json: JSON {
        .versioned([("failures", .integer(failures)), ("warnings", .integer(warnings))])
    }
}
