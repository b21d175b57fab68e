// Limits how often log lines about frequent occurrences are written.
//
// Invariant: every occurrence is counted in exactly one line, or will be counted in the next one.

package import SpoolgatePosix

/// Counts occurrences by subject, such as a route, and decides when to log their number.
package struct RareLines<Subject: Hashable> {
    private struct Untold {
        var count = 0
        var next = Deadline.after(.zero)
    }

    private var untold: [Subject: Untold] = [:]

    /// Creates empty counts.
    package init() {}

    /// The subjects that were not forgotten.
    package var subjects: some Collection<Subject> { untold.keys }

    /// Counts an occurrence; returns the number since the last line if a line is due, otherwise nil.
    ///
    /// After that line, another one about the subject is due at `next`.
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

    /// Discards the counts of some subjects, so that a line is due at their next occurrence.
    package mutating func forget(where isForgotten: (Subject) -> Bool) {
        untold = untold.filter { !isForgotten($0.key) }
    }
}
