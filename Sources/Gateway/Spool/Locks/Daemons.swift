// Which daemons serve from a spool, and which have not ended in good order: the directory `daemons`.
//
// A daemon's file is locked for its life and removed when it ends in good order. So a file that can be locked
// is of one that died, and whoever locks it goes through the spool; nobody else has to. Beside it the file
// `wake`, by which a command tells daemons that the queue has changed. Invariant: a daemon's file is durable
// before it serves.

import SpoolgatePosix

/// The daemons of a spool, as this process takes part in them.
///
/// Any thread.
final class Daemons: Sendable {
    /// What this process has of its own.
    struct Membership {
        /// Its file, locked; nil where it is no daemon.
        var own: (name: String, file: OpenFile)?
        /// Those of daemons that have died, locked by this one.
        var dead: [(name: String, file: OpenFile)] = []
        /// The file `wake` that was last seen, by its number; open, so that no later one gets that number.
        var woken: (number: UInt64, file: OpenFile?)?
    }

    fileprivate let membership = Monitor(Membership())

    /// This process's file; nil where it is no daemon.
    var own: (name: String, file: OpenFile)? { membership.update { $0.own } }
}

/// A node that serves from a shared spool, or did until it died.
package struct SpoolNode: Sendable, Equatable {
    /// Its name.
    package let name: String
    /// Whether its daemon lives.
    package let isAlive: Bool
}

extension Spool {
    private static let wakeFile = "wake"

    /// Whether this process is a daemon, whose file says where it did not end in good order.
    var isDaemon: Bool { daemons.own != nil }

    /// Notes, durably, that this process serves from the spool, until `leave()`.
    ///
    /// Call it before anything is served; then `recover(_:)`, which may run beside serving.
    ///
    /// - Throws: where that cannot be noted: then it must not be served.
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
            // Another daemon may have taken it for a dead one's before it was locked, and removes it.
            if try file.tryLock(), try file.status().names > 0 { return (name, file) }
        }
    }

    /// The daemons that are noted in a shared spool, by their nodes.
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

    /// Whether the daemon of a file in `daemons` lives; nil where the file is gone.
    private func isLocked(daemon name: String) throws(SystemError) -> Bool? {
        guard let file = try OpenFile.open(name, in: layout.daemons, forWriting: false) else {
            return nil
        }
        return try file.descriptor.isLockedElsewhere(subject: file.subject)
    }

    /// Refuses to serve beside a daemon that takes the spool for its host's alone, or the other way round: what
    /// one trusts the other does not promise.
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

    /// Notes that this process ends in good order: nothing has to be looked for after it.
    ///
    /// Where it did not go through the spool to the end after one that died, that one's file stays.
    package func leave() {
        let own = daemons.membership.update { membership in
            defer { membership = Daemons.Membership() }
            return membership.own
        }
        if let own { _ = try? disk.unlink(own.name, in: layout.daemons) }
    }

    /// Whether a daemon has died since this was asked last: then this one has to go through the spool.
    @discardableResult
    package func findsDead() -> Bool {
        guard let own = daemons.membership.update({ $0.own?.name }),
            let names = try? layout.daemons.names()
        else { return false }
        var isAnyDead = false
        for name in names where name != own {
            // Its lock is free once it is dead, and then this process's. Gone, it was another's to look after.
            guard let file = try? OpenFile.open(name, in: layout.daemons),
                (try? file.tryLock()) == true, let status = try? file.status(), status.names > 0
            else { continue }
            daemons.membership.update { $0.dead.append((name, file)) }
            isAnyDead = true
        }
        return isAnyDead
    }

    /// Whether a daemon died that nobody has gone through the spool for, to this one's end.
    package var isAfterDeath: Bool { daemons.membership.update { !$0.dead.isEmpty } }

    /// Forgets daemons that have died, after all that they left was made legal.
    func forgetDead() {
        let dead = daemons.membership.update { membership in
            defer { membership.dead = [] }
            return membership.dead
        }
        for one in dead { _ = try? disk.unlink(one.name, in: layout.daemons) }
    }

    // MARK: Waking

    /// Has the daemons look at the queue; where that fails, their next run finds what there is.
    func wake() { try? writeWakeFile() }

    /// Has the daemons look at the queue, within a second.
    ///
    /// - Returns: whether there is one.
    /// - Throws: `.disk` where they cannot be told, or nobody can see whether there is one.
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

    /// Whether the daemons were to look at the queue since this was asked last.
    ///
    /// Called at least once a second, it also detects first that this host is shut out of a shared spool.
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
