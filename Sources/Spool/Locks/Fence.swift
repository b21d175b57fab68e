// Whether this process may still work in a spool that several hosts share.
//
// The file system shuts a host out that it has lost: names seem gone then, and after the first failed sync later
// ones succeed. So nothing that the disk says after that is believed, and nothing more is told: the first sign
// ends the daemon. What it had is another's to go on with. Invariant: in a spool of one host nothing here does
// anything.

package import Posix

/// What ends the process at the first sign that it is shut out.
///
/// Any thread.
final class Fence: Sendable {
    private let onFenced: Monitor<(@Sendable (SystemError) -> Void)?>

    init() { onFenced = Monitor(nil) }

    /// What is called at each sign; should not return.
    func set(_ action: @escaping @Sendable (SystemError) -> Void) {
        onFenced.update { $0 = action }
    }

    func note(_ error: SystemError) { onFenced.update { $0 }?(error) }
}

extension Spool {
    /// Whether several hosts share the spool.
    package var isShared: Bool { node != nil }

    /// Has `action` called, by any thread, at each sign that this process is shut out of a shared spool; it should
    /// end the process at once.
    package func onFenced(_ action: @escaping @Sendable (SystemError) -> Void) { fence.set(action) }

    /// Looks whether the spool is still there for this process, where it is shared.
    ///
    /// Call it before anything is believed, or told, that no change of the disk has just proved: that an upload
    /// is gone, that its offset was durable before.
    ///
    /// - Throws: `.disk` where it is not: this process is shut out, or another took it for dead.
    package func checkMembership() throws(SpoolError) {
        guard isShared else { return }
        try onDisk { () throws(SystemError) in
            guard try layout.root.status(of: "format") != nil else {
                throw layout.root.gone("format")
            }
            // A command has no file there.
            guard let own = daemons.own else { return }
            guard try layout.daemons.status(of: own.name) != nil else {
                throw layout.daemons.gone(own.name)
            }
        }
    }
}

extension Directory {
    /// A name that must be there and is not, as of a host that is shut out.
    fileprivate func gone(_ name: String) -> SystemError {
        SystemError(call: "openat", subject: path(of: name), errno: SystemError.fenced)
    }
}
