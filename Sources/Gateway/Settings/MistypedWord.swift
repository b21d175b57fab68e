// Detection of mistyped words, to suggest the right one.

enum MistypedWord {
    /// Returns whether `word` differs from `known` by at most two missing, added, replaced or exchanged letters.
    ///
    /// Words of fewer than four letters never match, because too many words are similar to them.
    static func isLike(_ word: some StringProtocol, _ known: some StringProtocol) -> Bool {
        let (one, other) = (Array(word.lowercased().utf8), Array(known.utf8))
        guard one.count >= 4, abs(one.count - other.count) <= 2 else { return false }
        // The Damerau distance also needs the row before the last one.
        var beforeLast: [Int] = []
        var last = Array(0...other.count)
        for (row, letter) in one.enumerated() {
            var current = [row + 1]
            for (column, wanted) in other.enumerated() {
                var best = min(last[column + 1], current[column]) + 1
                best = min(best, last[column] + (letter == wanted ? 0 : 1))
                if row > 0, column > 0, letter == other[column - 1], one[row - 1] == wanted {
                    best = min(best, beforeLast[column - 1] + 1)
                }
                current.append(best)
            }
            (beforeLast, last) = (last, current)
        }
        return last[other.count] <= 2
    }
}
