// How often something happened that would bury the log with a line each time.
//
// Invariant: every occurrence is counted in exactly one line, or waits for one.

package import SpoolgatePosix

/// Counts what is told now and then, by subject.
package struct RareLines<Subject: Hashable> {
    private struct Untold {
        var count = 0
        var next = Deadline.after(.zero)
    }

    private var untold: [Subject: Untold] = [:]

    /// Makes it with nothing counted.
    package init() {}

    /// The subjects of which something was counted.
    package var subjects: some Collection<Subject> { untold.keys }

    /// Counts one of a subject.
    ///
    /// - Parameters:
    ///   - subject: what has lines of its own.
    ///   - next: when it may have its next line, if it has one now.
    /// - Returns: how many are to be told now, this one included; nil: nothing is to be told.
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

    /// Tells of these subjects again at once.
    package mutating func forget(where isForgotten: (Subject) -> Bool) {
        untold = untold.filter { !isForgotten($0.key) }
    }
}
