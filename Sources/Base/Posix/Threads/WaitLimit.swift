// A wait that may be extended.

/// A deadline that a function may extend.
///
/// Only one thread may use the limit.
package final class WaitLimit {
    package private(set) var deadline: Deadline
    private let extend: () -> Deadline?

    /// Creates a limit that is never extended.
    package convenience init(_ deadline: Deadline) { self.init(deadline) { nil } }

    /// Creates a limit with a first deadline.
    ///
    /// `extend` is called when the deadline has passed, and returns the next deadline, or nil to end the wait.
    package init(_ deadline: Deadline, extend: @escaping () -> Deadline?) {
        self.deadline = deadline
        self.extend = extend
    }

    /// Whether the wait has ended.
    ///
    /// If the deadline has passed, calls `extend` first.
    package var hasPassed: Bool {
        guard deadline.hasPassed else { return false }
        guard let later = extend() else { return true }
        deadline = later
        return false
    }
}
