// What a check found, and how a list of it is written: for people in aligned lines, for programs in JSON.
//
// Nothing is looked at here. The invariant: what is not well names what mends it.

import SpoolgatePosix
package import SpoolgateTextFormats

/// What one check found.
package struct Finding: Sendable, Equatable {
    /// How well it is.
    package enum Level: String, Sendable, CaseIterable {
        /// As it should be.
        case ok
        /// It works, and less well than it could.
        case warning = "warn"
        /// Uploads fail, or cannot be resumed.
        case failure = "fail"
        /// It was not looked at.
        case skipped = "skip"

        /// The word in a line for people.
        var shown: String {
            switch self {
            case .ok, .warning: rawValue
            case .failure: "FAIL"
            case .skipped: "-"
            }
        }
    }

    /// Which check it is, one word of at most eleven letters.
    package var name: String
    /// How well it is.
    package var level: Level
    /// What was seen, in one sentence without its end.
    package var text: String
    /// What mends it: directives, settings or commands, one each; empty only where nothing has to be mended.
    package var mends: [String]

    /// Makes a finding.
    package init(_ level: Level, _ name: String, _ text: String, mends: [String] = []) {
        (self.level, self.name, self.text, self.mends) = (level, name, text, mends)
    }

    /// Something as it should be.
    package static func ok(_ name: String, _ text: String) -> Finding { .init(.ok, name, text) }

    /// Something that was not looked at, and why.
    package static func skipped(_ name: String, _ text: String) -> Finding {
        .init(.skipped, name, text)
    }

    /// Something that works, and not as well as it could.
    static func warning(_ name: String, _ text: String, _ mends: [String]) -> Finding {
        .init(.warning, name, text, mends: mends)
    }

    /// Something that does not work.
    static func failure(_ name: String, _ text: String, _ mends: [String]) -> Finding {
        .init(.failure, name, text, mends: mends)
    }

    /// ` FAIL  streaming   …`, and below it what mends it; no line ends but between those lines.
    package var line: String {
        let head = " \(level.shown.padded(toColumns: 5)) \(name.padded(toColumns: 11)) "
        let indent = String(repeating: " ", count: head.count)
        return ([head + text.forTerminal] + mends.map { indent + $0.forTerminal })
            .joined(separator: "\n")
    }

    /// The same for programs.
    package var json: JSON {
        .versioned([
            ("check", .string(name)), ("level", .string(level.rawValue)),
            ("text", .string(text)), ("mend", .array(mends.map { .string($0) })),
        ])
    }
}

/// How many findings of each level there are.
package struct Verdict: Sendable, Equatable {
    /// How many failures.
    package private(set) var failures = 0
    /// How many warnings.
    package private(set) var warnings = 0

    /// A verdict on nothing.
    package init() {}

    /// Counts one more.
    package mutating func count(_ finding: Finding) {
        switch finding.level {
        case .failure: failures += 1
        case .warning: warnings += 1
        case .ok, .skipped: break
        }
    }

    /// Both in words: `2 failures, 1 warning.`.
    package var line: String {
        func counted(_ count: Int, _ word: String) -> String {
            "\(count == 0 ? "no" : "\(count)") \(word)\(count == 1 ? "" : "s")"
        }
        return "\(counted(failures, "failure")), \(counted(warnings, "warning"))."
    }

    /// The same for programs.
    package var json: JSON {
        .versioned([
            ("failures", .integer(Int64(failures))),
            ("warnings", .integer(Int64(warnings))),
        ])
    }
}
