// Until when somebody waits, where a long wait needs leave.

/// A deadline that can be put off once.
///
/// Used by one thread.
package final class WaitLimit {
    /// When the wait ends as things stand.
    package private(set) var deadline: Deadline
    private var extend: (() -> Deadline?)?

    /// Makes a limit that cannot be put off.
    package init(_ deadline: Deadline) { self.deadline = deadline }

    /// Makes a limit.
    ///
    /// - Parameters:
    ///   - deadline: when the first, short wait ends.
    ///   - extend: asked once, when `deadline` has come; nil: the wait is over.
    package init(_ deadline: Deadline, extend: @escaping () -> Deadline?) {
        self.deadline = deadline
        self.extend = extend
    }

    /// Whether the wait is over; asks whether it may go on where that was not asked before.
    package var hasPassed: Bool {
        guard deadline.hasPassed else { return false }
        guard let extend else { return true }
        self.extend = nil
        guard let later = extend() else { return true }
        deadline = later
        return deadline.hasPassed
    }
}
