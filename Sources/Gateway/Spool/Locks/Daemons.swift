// The daemons that serve from a spool, and those that have crashed: the directory `daemons`.
//
// A daemon locks its file for its whole life and removes it at a clean shutdown. A file that can be locked therefore
// belongs to a crashed daemon, and the process that locks it recovers the spool; no other process has to. Commands
// replace the file `wake` to report a changed queue to the daemons. Invariant: a daemon's file is durable before the
// daemon serves.

import SpoolgatePosix

/// The files of daemons that this process has made or locked.
///
/// Thread-safe.
final class Daemons: Sendable {
    /// The state of one process.
    struct Membership {
        /// This process's file, locked; nil if it is not a daemon.
        var own: (name: String, file: OpenFile)?
        /// The files of crashed daemons that this process has locked.
        var dead: [(name: String, file: OpenFile)] = []
        /// The last `wake` file that was seen, by its inode number; kept open so that the number is not reused.
        var woken: (number: UInt64, file: OpenFile?)?
    }

    fileprivate let membership = Monitor(Membership())

    /// This process's file; nil if it is not a daemon.
    var own: (name: String, file: OpenFile)? { membership.update { $0.own } }
}

/// A node that serves from a shared spool, or did until its daemon crashed.
package struct SpoolNode: Sendable, Equatable {
    /// Its name.
    package let name: String
    /// Whether its daemon is alive.
    package let isAlive: Bool
}

extension Spool {
    private static let wakeFile = "wake"

    /// Whether this process is a daemon, so that its file reveals a crash.
    var isDaemon: Bool { daemons.own != nil }

    /// Records durably that this process serves from the spool, until `leave()`.
    ///
    /// Call it before serving; then call `recover(_:)`, which may run while requests are served.
    ///
    /// - Throws: an error if this cannot be recorded; the process must not serve then.
    package func enter() throws(SpoolError) {
        try onDisk { () throws(SystemError) in
            let (name, file) = try makeDaemonFile()
            try disk.write(Array("\(writer)\n".utf8), to: file, at: 0)
            try disk.sync(file)
            try disk.syncDirectory(layout.daemons)
            daemons.membership.update { $0.own = (name, file) }
        }
        try checkOthers()
        findsDead()
        _ = isWoken()
    }

    private func makeDaemonFile() throws(SystemError) -> (String, OpenFile) {
        while true {
            let name = isShared ? writer : TemporaryName.next()
            let made = try disk.create(name, in: layout.daemons)
            let file = OpenFile(made, name, in: layout.daemons)
            // Before it is locked, another daemon may take the file for a crashed daemon's and remove it.
            if try file.tryLock(), try file.status().names > 0 { return (name, file) }
        }
    }

    /// Returns the nodes of all daemons that have a file in a shared spool.
    package func nodes() throws(SpoolError) -> [SpoolNode] {
        let own = daemons.own?.name
        return try onDisk { () throws(SystemError) in
            var nodes: [SpoolNode] = []
            for name in try layout.daemons.names().sorted() {
                guard let node = Writer.node(of: name) else { continue }
                guard let isAlive = name == own ? true : try isLocked(daemon: name) else {
                    continue
                }
                nodes.append(SpoolNode(name: node, isAlive: isAlive))
            }
            return nodes
        }
    }

    /// Returns whether the daemon of a file in `daemons` is alive; nil if the file is missing.
    private func isLocked(daemon name: String) throws(SystemError) -> Bool? {
        guard let file = try OpenFile.open(name, in: layout.daemons, forWriting: false) else {
            return nil
        }
        return try file.descriptor.isLockedElsewhere(subject: file.subject)
    }

    /// Throws if a daemon with another setting of `spool.shared` is serving: each relies on guarantees that the other
    /// does not give.
    private func checkOthers() throws(SpoolError) {
        let others = try onDisk { () throws(SystemError) in
            var others: [String] = []
            for name in try layout.daemons.names() where (Writer.node(of: name) != nil) != isShared
            {
                if try isLocked(daemon: name) == true { others.append(name) }
            }
            return others
        }
        guard !others.isEmpty else { return }
        leave()
        let reason =
            isShared
            ? "a daemon without spool.shared is using it"
            : "it is shared, and node \(others.compactMap(Writer.node).joined(separator: ", ")) is using it"
        throw .unusable(
            directory: directory,
            reason: reason,
            advice: "set spool.shared to the same value on all nodes"
        )
    }

    /// Removes this process's file at a clean shutdown: its uploads need no recovery.
    ///
    /// The file of a crashed daemon stays if this process has not completed the recovery after it.
    package func leave() {
        let own = daemons.membership.update { membership in
            defer { membership = Daemons.Membership() }
            return membership.own
        }
        if let own { _ = try? disk.unlink(own.name, in: layout.daemons) }
    }

    /// Returns whether a daemon has crashed since the last call; this process must recover the spool then.
    @discardableResult
    package func findsDead() -> Bool {
        guard let own = daemons.membership.update({ $0.own?.name }),
            let names = try? layout.daemons.names()
        else { return false }
        var isAnyDead = false
        for name in names where name != own {
            // The lock succeeds only if the daemon has ended. A file without a name needs no recovery by this process.
            guard let file = try? OpenFile.open(name, in: layout.daemons),
                (try? file.tryLock()) == true, let status = try? file.status(), status.names > 0
            else { continue }
            daemons.membership.update { $0.dead.append((name, file)) }
            isAnyDead = true
        }
        return isAnyDead
    }

    /// Whether a daemon has crashed and this process has not completed the recovery after it.
    package var isAfterDeath: Bool { daemons.membership.update { !$0.dead.isEmpty } }

    /// Removes the files of crashed daemons, after everything that they left has been repaired.
    func forgetDead() {
        let dead = daemons.membership.update { membership in
            defer { membership.dead = [] }
            return membership.dead
        }
        for one in dead { _ = try? disk.unlink(one.name, in: layout.daemons) }
    }

    // MARK: Waking

    /// Makes the daemons check the queue; if this fails, their next run finds the change.
    func wake() { try? writeWakeFile() }

    /// Makes the daemons check the queue within a second.
    ///
    /// - Returns: whether a daemon is running.
    /// - Throws: `.disk` if the daemons cannot be notified, or their files cannot be read.
    package func wakeDaemons() throws(SpoolError) -> Bool {
        try onDisk { () throws(SystemError) in
            try writeWakeFile()
            for name in try layout.daemons.names() where try isLocked(daemon: name) == true {
                return true
            }
            return false
        }
    }

    private func writeWakeFile() throws(SystemError) {
        try layout.replace(Self.wakeFile, with: "", on: disk)
    }

    /// Returns whether a process has called for a check of the queue since the last call.
    ///
    /// Because it runs at least once a second, it is also the first to detect that the file system has fenced off this
    /// host.
    package func isWoken() -> Bool {
        let seen = try? onDisk { () throws(SystemError) in
            try layout.root.status(of: Self.wakeFile)?.file
        }
        guard let seen, seen != daemons.membership.update({ $0.woken?.number }) else {
            return false
        }
        let file = try? OpenFile.open(Self.wakeFile, in: layout.root, forWriting: false)
        let number = (try? file?.status())?.file
        daemons.membership.update { $0.woken = (number ?? seen, file) }
        return true
    }
}
