// The common protocol of observations, which create findings in the name of their check.

/// The observation of one check.
protocol Seen {
    var check: String { get }
}

extension Seen {
    /// Creates a finding without a problem.
    func ok(_ text: String) -> Finding { .ok(check, text) }

    /// Creates a finding for a skipped check; `text` says why.
    func skipped(_ text: String) -> Finding { .skipped(check, text) }

    /// Creates a finding for a problem that uploads survive.
    func warning(_ text: String, _ fixes: [String]) -> Finding { .warning(check, text, fixes) }

    /// Creates a finding for a problem that breaks uploads.
    func failure(_ text: String, _ fixes: [String]) -> Finding { .failure(check, text, fixes) }
}
