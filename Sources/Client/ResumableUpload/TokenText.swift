// The text of tokens, which other processes read.

import SpoolgateTextFormats

/// The form is `v1 KIND name=value name=value`, with percent-encoded values.
enum TokenText {
    static func write(_ kind: String, _ parts: [(name: String, value: String?)]) -> String {
        let words = parts.compactMap { part in
            part.value.map { "\(part.name)=\(PercentText.encode($0))" }
        }
        return (["v1", kind] + words).joined(separator: " ")
    }

    /// Returns the values by name, including those from newer versions, or nil if the text is invalid.
    static func read(_ kind: String, _ text: String) -> [String: String]? {
        let words = text.split { $0.isWhitespace }
        guard words.count > 2, words[0] == "v1", words[1] == kind else { return nil }
        var parts: [String: String] = [:]
        for word in words.dropFirst(2) {
            guard let sign = word.firstIndex(of: "=") else { return nil }
            let value = PercentText.decode(word[word.index(after: sign)...].utf8)
            guard parts[String(word[..<sign])] == nil,
                let text = String(validating: value, as: UTF8.self)
            else { return nil }
            parts[String(word[..<sign])] = text
        }
        return parts
    }

    /// Parses a number.
    ///
    /// The inner nil means that the text is missing, the outer nil that the text is invalid.
    static func number(_ text: String?) -> Int64?? {
        guard let text else { return .some(nil) }
        guard let number = Int64(digits: text) else { return nil }
        return .some(number)
    }
}
