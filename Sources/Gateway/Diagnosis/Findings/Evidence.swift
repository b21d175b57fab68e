// The common protocol of observations.

/// An observation that has not been judged yet.
///
/// Its findings have the name of its check.
protocol Evidence {
    var check: String { get }
}

extension Evidence {
    func ok(_ text: String) -> Finding { .ok(check, text) }

    func skipped(_ text: String) -> Finding { .skipped(check, text) }

    /// A finding for a problem that does not make uploads fail.
    func warning(_ text: String, _ fixes: [String]) -> Finding { .warning(check, text, fixes) }

    func warning(_ text: String, _ fix: String) -> Finding { warning(text, [fix]) }

    /// A finding for a problem that makes uploads fail.
    func failure(_ text: String, _ fixes: [String]) -> Finding { .failure(check, text, fixes) }

    func failure(_ text: String, _ fix: String) -> Finding { failure(text, [fix]) }
}
