// Text in commands that people are asked to type.

extension String {
    /// The text as one shell word, quoted if necessary.
    package var shellWord: String {
        let isPlain = unicodeScalars.allSatisfy { scalar in
            scalar.properties.isAlphabetic || ("0"..."9").contains(scalar)
                || "_./:=@%+,-".unicodeScalars.contains(scalar)
        }
        return isPlain && !isEmpty
            ? self
            : "'\(split(separator: "'", omittingEmptySubsequences: false).joined(separator: #"'\''"#))'"
    }
}
