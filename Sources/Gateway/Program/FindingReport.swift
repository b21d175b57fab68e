// Findings on their way to the terminal or to a program, and the exit code that they add up to.

import SpoolgateDiagnosis
import SpoolgateTextFormats

/// Writes findings as they come.
///
/// One thread.
final class FindingReport {
    private let isJSON: Bool
    private var verdict = Verdict()

    /// Begins a report; `title` is for people alone.
    init(_ title: String, json: Bool) {
        isJSON = json
        if !json { print(title.forTerminal) }
    }

    /// Writes one finding.
    func tell(_ finding: Finding) {
        verdict.count(finding)
        print(isJSON ? finding.json.text : finding.line)
    }

    /// Writes the sum.
    ///
    /// - Throws: `CommandFailure` unless everything is well, told already.
    func end() throws(CommandFailure) {
        print(isJSON ? verdict.json.text : verdict.line)
        guard verdict.failures == 0, verdict.warnings == 0 else {
            throw CommandFailure(
                code: verdict.failures > 0 ? .unavailable : .warnings,
                sentence: verdict.line,
                isTold: true
            )
        }
    }
}
