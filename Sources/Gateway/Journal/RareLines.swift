// Limits how often log lines about frequent occurrences are written.
//
// Invariant: every occurrence is counted in exactly one line, or will be counted in the next line.

package import SpoolgatePosix

/// Counts occurrences, and decides when to write a log line with their number.
///
/// Each subject, such as a route, is counted separately.
package struct RareLines<Subject: Hashable> {
    private struct Unreported {
        var count = 0
        var next = Deadline.after(.zero)
    }

    private var unreported: [Subject: Unreported] = [:]

    /// Creates empty counts.
    package init() {}

    /// The subjects that have occurred and have not been forgotten.
    package var subjects: some Collection<Subject> { unreported.keys }

    /// Counts occurrences, and returns a number if a line is due now.
    ///
    /// `next` is the earliest time of the next line about the subject if a line is due now.
    ///
    /// - Returns: the number of occurrences since the last line, including these, or nil if no line is due.
    package mutating func note(
        _ subject: Subject,
        count: Int = 1,
        next: Deadline = .after(.seconds(60))
    ) -> Int? {
        var noted = unreported[subject] ?? Unreported()
        noted.count += count
        let isReported = noted.next.hasPassed
        unreported[subject] = isReported ? Unreported(next: next) : noted
        return isReported ? noted.count : nil
    }

    /// Discards the counts of some subjects, so that a line is due at their next occurrence.
    package mutating func forget(where isForgotten: (Subject) -> Bool) {
        unreported = unreported.filter { !isForgotten($0.key) }
    }
}
