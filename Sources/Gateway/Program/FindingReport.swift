// The output of findings, for people or as JSON, and the resulting exit code.

import SpoolgateDiagnosis
import SpoolgateTextFormats

/// Prints and counts findings as checks are made; use it on one thread only.
final class FindingReport {
    private let isJSON: Bool
    private var count = FindingCount()

    /// Begins a report; prints `title` unless `json` is true.
    init(_ title: String, json: Bool) {
        isJSON = json
        if !json { print(title.forTerminal) }
    }

    func add(_ finding: Finding) {
        count.count(finding)
        print(isJSON ? finding.json.text : finding.line)
    }

    /// Prints the numbers of failures and warnings; if there are any, throws the exit code, marked as already reported.
    func end() throws(CommandFailure) {
        print(isJSON ? count.json.text : count.line)
        guard count.failures == 0, count.warnings == 0 else {
            let code: CommandFailure.Code = count.failures > 0 ? .unavailable : .warnings
            throw CommandFailure(code, count.line, isReported: true)
        }
    }
}
