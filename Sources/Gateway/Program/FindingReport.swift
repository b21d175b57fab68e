// The output of findings, for people or as JSON, and the exit code that results from them.

import SpoolgateDiagnosis
import SpoolgateTextFormats

/// Prints findings as they are made.
///
/// One thread.
final class FindingReport {
    private let isJSON: Bool
    private var verdict = Verdict()

    /// Begins a report; `title` is printed only for people.
    init(_ title: String, json: Bool) {
        isJSON = json
        if !json { print(title.forTerminal) }
    }

    /// Prints one finding.
    func tell(_ finding: Finding) {
        verdict.count(finding)
        print(isJSON ? finding.json.text : finding.line)
    }

    /// Prints the totals.
    ///
    /// - Throws: `CommandFailure`, already reported, if there are failures or warnings.
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
