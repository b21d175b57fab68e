// The output of findings, for people or as JSON, and the resulting exit code.

import SpoolgateDiagnosis
import SpoolgateTextFormats

/// Prints and counts findings as checks are made; use it on one thread only.
final class FindingReport {
    private let isJSON: Bool
    private var verdict = Verdict()

    /// Begins a report; prints `title` unless `json` is true.
    init(_ title: String, json: Bool) {
        isJSON = json
        if !json { print(title.forTerminal) }
    }

    func tell(_ finding: Finding) {
        verdict.count(finding)
        print(isJSON ? finding.json.text : finding.line)
    }

    /// Prints the numbers of failures and warnings; if there are any, throws the exit code, marked as already reported.
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
