// Rate limits for log lines about frequent occurrences.
//
// Invariant: every occurrence is counted in exactly one line, or waits for one.

package import SpoolgatePosix

/// Counts of occurrences by subject, logged at intervals.
package struct RareLines<Subject: Hashable> {
    private struct Untold {
        var count = 0
        var next = Deadline.after(.zero)
    }

    private var untold: [Subject: Untold] = [:]

    /// Creates empty counts.
    package init() {}

    package var subjects: some Collection<Subject> { untold.keys }

    /// Counts an occurrence.
    ///
    /// - Parameters:
    ///   - subject: the subject, which has its own interval.
    ///   - next: the earliest time of the next line, if one is due now.
    /// - Returns: the occurrences for a line that is due now, including this one; nil if no line is due.
    package mutating func note(
        _ subject: Subject,
        next: Deadline = .after(.seconds(60))
    ) -> Int? {
        var noted = untold[subject] ?? Untold()
        noted.count += 1
        let isTold = noted.next.hasPassed
        untold[subject] = isTold ? Untold(next: next) : noted
        return isTold ? noted.count : nil
    }

    /// Makes the next occurrence of these subjects due at once.
    package mutating func forget(where isForgotten: (Subject) -> Bool) {
        untold = untold.filter { !isForgotten($0.key) }
    }
}
