// The common protocol of observations. Each creates findings with the name of its check.

/// The result of one check before it is judged: what was observed, as opposed to what it means.
protocol Seen {
    var check: String { get }
}

extension Seen {
    /// Creates a finding that reports no problem.
    func ok(_ text: String) -> Finding { .ok(check, text) }

    /// Creates a finding for a skipped check; `text` says why.
    func skipped(_ text: String) -> Finding { .skipped(check, text) }

    /// Creates a finding for a problem despite which uploads work.
    func warning(_ text: String, _ fixes: [String]) -> Finding { .warning(check, text, fixes) }

    /// Creates a finding for a problem that makes uploads fail.
    func failure(_ text: String, _ fixes: [String]) -> Finding { .failure(check, text, fixes) }
}
