// Until when somebody waits, where the wait has to be looked at on its way.

/// A deadline that is put off as long as somebody says so.
///
/// Used by one thread.
package final class WaitLimit {
    /// When the wait ends, or is looked at, as things stand.
    package private(set) var deadline: Deadline
    private let extend: () -> Deadline?

    /// Makes a limit that is not put off.
    package convenience init(_ deadline: Deadline) { self.init(deadline) { nil } }

    /// Makes a limit.
    ///
    /// - Parameters:
    ///   - deadline: until when it goes on in any case.
    ///   - extend: asked each time that the deadline has come, for the next one; nil: the wait is over.
    package init(_ deadline: Deadline, extend: @escaping () -> Deadline?) {
        self.deadline = deadline
        self.extend = extend
    }

    /// Whether the wait is over; asks where the deadline has come.
    package var hasPassed: Bool {
        guard deadline.hasPassed else { return false }
        guard let later = extend() else { return true }
        deadline = later
        return false
    }
}
