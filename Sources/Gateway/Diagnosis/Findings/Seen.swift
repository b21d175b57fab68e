// What a check has seen: its findings have its name.

/// Something seen by one check.
protocol Seen {
    /// The check's name, as in `Finding.name`.
    var check: String { get }
}

extension Seen {
    /// It is as it should be.
    func ok(_ text: String) -> Finding { .ok(check, text) }

    /// It was not looked at, and why.
    func skipped(_ text: String) -> Finding { .skipped(check, text) }

    /// It works, and not as well as it could; `mends` as of `Finding`.
    func warning(_ text: String, _ mends: [String]) -> Finding { .warning(check, text, mends) }

    /// It does not work; `mends` as of `Finding`.
    func failure(_ text: String, _ mends: [String]) -> Finding { .failure(check, text, mends) }
}
