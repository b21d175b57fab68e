// Request targets as logs, lists and events show them: queries carry tokens, and what is written there is
// read by more people than may use them.

extension StringProtocol {
    /// This request target for people and other programs.
    ///
    /// - Parameter withQuery: false: `?…` stands for a query, if there is one.
    /// - Returns: the path as it is, and what is shown of the query.
    package func shownTarget(withQuery: Bool) -> String {
        guard !withQuery, let mark = utf8.firstIndex(of: UInt8(ascii: "?")) else {
            return String(self)
        }
        return "\(self[..<mark])?\u{2026}"
    }
}
