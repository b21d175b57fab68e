// The daemons that serve from a spool, and those that have crashed: the directory `daemons`.
//
// A daemon locks its file while it runs and removes the file at a clean shutdown. A file that can be locked therefore
// belongs to a crashed daemon, and only the process that locks it recovers the spool; its mark says so. Commands
// replace the file `wake` to report a changed queue. Invariant: a daemon's file is durable before the daemon serves.

import SpoolgatePosix

/// The files in `daemons` that this process has created or locked.
///
/// Thread-safe.
final class Daemons: Sendable {
    struct Membership {
        /// This process's locked file, or nil if this process is not a daemon.
        var own: (name: String, file: OpenFile)?
        /// The files of crashed daemons, locked until this process has recovered the spool.
        var dead: [(name: String, file: OpenFile)] = []
        /// The inode number of the last `wake` file found.
        ///
        /// The file stays open so that the number is not reused.
        var woken: (number: UInt64, file: OpenFile?)?
    }

    fileprivate let membership = Monitor(Membership())

    var own: (name: String, file: OpenFile)? { membership.update { $0.own } }
}

/// A node of a shared spool whose daemon is running or has crashed.
package struct SpoolNode: Sendable, Equatable {
    package let name: String
    package let isAlive: Bool
}

extension Spool {
    private static let wakeFile = "wake"

    var isDaemon: Bool { daemons.own != nil }

    /// Creates and locks this process's file in `daemons`, durably; the file stays until `leave()`.
    ///
    /// Call this before serving requests; then call `recover(_:)`, which may run while requests are served.
    ///
    /// - Throws: an error if the file cannot be created, or a daemon with another value of `spool.shared` is serving;
    ///   the process must not serve requests then.
    package func enter() throws(SpoolError) {
        try onDisk { () throws(SystemError) in
            let (name, file) = try makeDaemonFile()
            try disk.write(Array("\(writer)\n".utf8), to: file, at: 0)
            try disk.sync(file)
            try disk.syncDirectory(layout.daemons)
            daemons.membership.update { $0.own = (name, file) }
        }
        do throws(SpoolError) {
            try checkOthers()
            try checkBoot()
        } catch {
            leave()
            throw error
        }
        findsDead()
        _ = isWoken()
    }

    private func makeDaemonFile() throws(SystemError) -> (String, OpenFile) {
        var name = isShared ? writer : TemporaryName.next()
        while true {
            let made = try disk.create(name, in: layout.daemons)
            let file = OpenFile(made, name, in: layout.daemons)
            // Before the file is locked, another daemon may take it for a crashed daemon's and remove it.
            if try file.tryLock(), try file.status().names > 0 { return (name, file) }
            // The other daemon removes it after its recovery.
            name = node.map(Writer.process) ?? TemporaryName.next()
        }
    }

    /// Returns the nodes of a shared spool.
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

    /// Returns whether the daemon that created a file in `daemons` is running, or nil if the file is missing.
    private func isLocked(daemon name: String) throws(SystemError) -> Bool? {
        guard let file = try OpenFile.open(name, in: layout.daemons, forWriting: false) else {
            return nil
        }
        guard try file.descriptor.isLockedElsewhere(subject: file.subject) else { return false }
        return try !file.descriptor.isMarkedElsewhere(subject: file.subject)
    }

    /// Throws an error if a daemon with another value of `spool.shared` is serving, because neither gives the
    /// guarantees that the other needs.
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

    /// Checks that all running daemons see the same boot of the machine as this process; has no effect in a shared
    /// spool.
    ///
    /// Call this before a command changes uploads: namespaces can hide the kernel's boot identity, and the command
    /// would then take all uploads for those of another boot.
    ///
    /// - Throws: `.otherBoot` if a daemon sees another boot; `.disk` if the daemons' files cannot be read.
    package func checkBoot() throws(SpoolError) {
        guard !isShared else { return }
        // A daemon that recovers the uploads of a crashed one locks that one's file first, then marks it.
        let end = Deadline.after(.seconds(1))
        var other = try writerOfOtherBoot()
        while other != nil, !end.hasPassed {
            Thread.pause(.milliseconds(10))
            other = try writerOfOtherBoot()
        }
        if let other { throw .otherBoot(directory: directory, daemon: other, own: writer) }
    }

    private func writerOfOtherBoot() throws(SpoolError) -> String? {
        try onDisk { () throws(SystemError) in
            for name in try layout.daemons.names() where try isLocked(daemon: name) == true {
                if let found = try writer(ofDaemon: name), found != writer { return found }
            }
            return nil
        }
    }

    /// Whether daemons of an earlier boot have not ended cleanly, and their uploads have not all been recovered since.
    ///
    /// In a shared spool, other daemons count as such.
    var isAfterPowerFailure: Bool {
        let names = (try? layout.daemons.names()) ?? []
        return names.contains { name in
            let found = try? writer(ofDaemon: name)
            return found != nil && found != writer
        }
    }

    /// Returns the writer in a daemon's file; nil if the daemon is starting, or the file is missing.
    private func writer(ofDaemon name: String) throws(SystemError) -> String? {
        let text = try SpoolLayout.text(of: name, in: layout.daemons)
        return text.flatMap { $0.split(separator: "\n").first }.map { String($0) }
    }

    /// Removes this process's file at a clean shutdown, so that its uploads need no recovery.
    package func leave() {
        let own = daemons.membership.update { membership in
            defer { membership = Daemons.Membership() }
            return membership.own
        }
        if let own { _ = try? disk.unlink(own.name, in: layout.daemons) }
    }

    /// Returns whether a daemon has crashed since the last call; if true, this process must recover the spool.
    @discardableResult
    package func findsDead() -> Bool {
        guard let own = daemons.membership.update({ $0.own?.name }),
            let names = try? layout.daemons.names()
        else { return false }
        var isAnyDead = false
        for name in names where name != own {
            // A file without a name needs no recovery by this process.
            guard let file = try? OpenFile.open(name, in: layout.daemons),
                (try? file.tryLock()) == true, let status = try? file.status(), status.names > 0
            else { continue }
            try? file.descriptor.setMark(to: true, subject: file.subject)
            daemons.membership.update { $0.dead.append((name, file)) }
            isAnyDead = true
        }
        return isAnyDead
    }

    /// Whether this process has yet to complete the recovery of a crashed daemon.
    package var isAfterDeath: Bool { daemons.membership.update { !$0.dead.isEmpty } }

    /// Removes the files of crashed daemons, whose uploads must all have been repaired.
    func forgetDead() {
        let dead = daemons.membership.update { membership in
            defer { membership.dead = [] }
            return membership.dead
        }
        for one in dead { _ = try? disk.unlink(one.name, in: layout.daemons) }
    }

    // MARK: Waking

    /// Tells all daemons to check the queue, which they do within a second; if this fails, they detect the change at
    /// their next regular queue run.
    package func wake() { try? layout.replace(Self.wakeFile, with: "", on: disk) }

    /// Returns whether a process has called `wake()` since the last call.
    ///
    /// A daemon calls this at least once a second, so this is usually the first call to detect that the host was fenced
    /// off.
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
