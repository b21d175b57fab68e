// Detects that a shared file system has fenced off this host.
//
// A fenced host finds names missing, and after a first failed sync later syncs succeed. The first sign therefore ends
// the daemon, which sends no more responses; another node continues with its uploads. Invariant: nothing here affects a
// spool that is not shared.

package import SpoolgatePosix

/// The action that ends the process when the file system of a shared spool no longer accepts this host.
///
/// Thread-safe.
final class Fence: Sendable {
    private struct Alarm {
        /// The action, or nil if none is set or the action has started.
        var action: (@Sendable (SystemError) -> Void)?
        var isRaised = false
    }

    private let alarm = Monitor(Alarm())

    func set(_ action: @escaping @Sendable (SystemError) -> Void) {
        alarm.update { $0.action = action }
    }

    /// Runs the action because of `error`; if another thread is already running the action, waits for that thread.
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
    package var isShared: Bool { node != nil }

    /// Sets the action to run when a shared file system no longer accepts this host.
    ///
    /// The action runs at most once, on any thread, and should end the process immediately.
    package func onFenced(_ action: @escaping @Sendable (SystemError) -> Void) { fence.set(action) }

    /// Whether this process may no longer open the file `format`, which every daemon has read before.
    ///
    /// The CephFS kernel client fails every call with EACCES if its session ended during a network outage. Changed
    /// permissions of a single upload do not count.
    var isClosedToUs: Bool {
        do throws(SystemError) {
            _ = try OpenFile.open("format", in: layout.root, forWriting: false)
            return false
        } catch {
            return error.isDenial
        }
    }

    /// Checks that a shared spool still accepts this process; has no effect in other spools.
    ///
    /// Call this before reporting that an upload is missing or its offset was already durable, unless this process has
    /// just written to the disk.
    ///
    /// - Throws: `.disk` if the file system no longer accepts this host, or another node considers this process
    ///   crashed.
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
    fileprivate func gone(_ name: String) -> SystemError {
        SystemError(call: "openat", subject: path(of: name), errno: SystemError.fenced)
    }
}
