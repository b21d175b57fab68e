// Whether this process may still work in a spool that several hosts share.
//
// The file system shuts a host out that it has lost: names seem gone then, and after the first failed sync later
// ones succeed. So nothing that the disk says after that is believed, and nothing more is told: the first sign
// ends the daemon. What it had is another's to go on with. Invariant: in a spool of one host nothing here does
// anything.

package import SpoolgatePosix

/// What ends the process at the first sign that it is shut out.
///
/// Any thread.
final class Fence: Sendable {
    private struct Alarm {
        /// What is to be done at the first sign; nil: nothing, or it has begun.
        var action: (@Sendable (SystemError) -> Void)?
        /// Whether it is being done.
        var isRaised = false
    }

    private let alarm = Monitor(Alarm())

    /// What is called at the first sign; should not return.
    func set(_ action: @escaping @Sendable (SystemError) -> Void) {
        alarm.update { $0.action = action }
    }

    /// Takes an error for a sign; where another thread met one first, it waits for what that does.
    func note(_ error: SystemError) {
        let action = alarm.update { alarm in
            defer { alarm = Alarm(isRaised: alarm.isRaised || alarm.action != nil) }
            return alarm.action
        }
        guard let action else {
            // Whoever meets one as well tells nobody anything either.
            while alarm.update(\.isRaised) { Thread.pause(.seconds(1)) }
            return
        }
        action(error)
        alarm.update { $0.isRaised = false }
    }
}

extension Spool {
    /// Whether several hosts share the spool.
    package var isShared: Bool { node != nil }

    /// Has `action` called, once and by any thread, at the first sign that this process is shut out of a shared
    /// spool; it should end the process at once.
    package func onFenced(_ action: @escaping @Sendable (SystemError) -> Void) { fence.set(action) }

    /// Whether even the file `format` may not be opened, which every daemon of the spool has read.
    ///
    /// The kernel's client of CephFS answers every call with EACCES if its session ended while it had no
    /// network. One upload whose permissions somebody changed is no sign.
    var isClosedToUs: Bool {
        do throws(SystemError) {
            _ = try OpenFile.open("format", in: layout.root, forWriting: false)
            return false
        } catch {
            return error.isDenial
        }
    }

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
