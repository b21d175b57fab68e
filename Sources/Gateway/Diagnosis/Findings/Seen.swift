// The common protocol of observations.

/// An observation before it is judged; its findings have the name of its check.
protocol Seen {
    var check: String { get }
}

extension Seen {
    func ok(_ text: String) -> Finding { .ok(check, text) }

    func skipped(_ text: String) -> Finding { .skipped(check, text) }

    /// Uploads work despite the problem.
    func warning(_ text: String, _ fixes: [String]) -> Finding { .warning(check, text, fixes) }

    /// The problem makes uploads fail.
    func failure(_ text: String, _ fixes: [String]) -> Finding { .failure(check, text, fixes) }
}
