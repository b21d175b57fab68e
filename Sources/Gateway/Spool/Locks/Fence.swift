// Detection that a shared file system has fenced off this host.
//
// A fenced host finds names missing, and after a first failed sync later syncs succeed. The first sign therefore ends
// the daemon: it believes no later result of the disk and sends no response. Another node continues with its uploads.
// Invariant: nothing here has an effect on the spool of one host.

package import SpoolgatePosix

/// The action that ends the process at the first sign of a fence.
///
/// Thread-safe.
final class Fence: Sendable {
    private struct Alarm {
        /// The action for the first sign; nil if none is set or it has begun.
        var action: (@Sendable (SystemError) -> Void)?
        /// Whether the action is running.
        var isRaised = false
    }

    private let alarm = Monitor(Alarm())

    /// Sets the action for the first sign; it should not return.
    func set(_ action: @escaping @Sendable (SystemError) -> Void) {
        alarm.update { $0.action = action }
    }

    /// Treats an error as a sign; if another thread's action is running, waits until that ends.
    func note(_ error: SystemError) {
        let action = alarm.update { alarm in
            defer { alarm = Alarm(isRaised: alarm.isRaised || alarm.action != nil) }
            return alarm.action
        }
        guard let action else {
            // This thread must send no response either.
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

    /// Sets the action for the first sign that this host is fenced off from a shared spool.
    ///
    /// `action` is called once, by any thread, and should end the process immediately.
    package func onFenced(_ action: @escaping @Sendable (SystemError) -> Void) { fence.set(action) }

    /// Whether this process may no longer open the file `format`, which every daemon of the spool has read.
    ///
    /// The kernel's client of CephFS fails every call with EACCES if its session ended during a network outage. A
    /// single upload with changed permissions is no sign.
    var isClosedToUs: Bool {
        do throws(SystemError) {
            _ = try OpenFile.open("format", in: layout.root, forWriting: false)
            return false
        } catch {
            return error.isDenial
        }
    }

    /// Checks that a shared spool still accepts this process.
    ///
    /// Call it before relying on or reporting a fact that no change of the disk has just proved: that an upload is
    /// missing, or that its offset was durable before.
    ///
    /// - Throws: `.disk` if the host is fenced off, or another node has taken this process for dead.
    package func checkMembership() throws(SpoolError) {
        guard isShared else { return }
        try onDisk { () throws(SystemError) in
            guard try layout.root.status(of: "format") != nil else {
                throw layout.root.gone("format")
            }
            // A command has no file in `daemons`.
            guard let own = daemons.own else { return }
            guard try layout.daemons.status(of: own.name) != nil else {
                throw layout.daemons.gone(own.name)
            }
        }
    }
}

extension Directory {
    /// Returns the error for a missing name that must exist, as a fenced host finds it.
    fileprivate func gone(_ name: String) -> SystemError {
        SystemError(call: "openat", subject: path(of: name), errno: SystemError.fenced)
    }
}
