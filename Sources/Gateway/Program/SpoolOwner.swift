// Root works in a spool only as the spool's owner.
//
// The owner could otherwise make root follow a link, or change a file of root. Invariant: after `become`, the process
// has no way back to root, and has opened nothing that the owner controls.

import SpoolgatePosix

/// The user to whom a spool directory belongs.
enum SpoolOwner {
    /// Makes this process permanently run as the owner of a spool, if root runs it; does nothing if the spool is missing.
    ///
    /// Call it before anything in the spool, or in another directory of the daemon, is opened.
    ///
    /// - Throws: `.noPermission` if root cannot become that user, or if the spool belongs to root, but another user can
    ///   replace it.
    static func become(ofSpool directory: String) throws(CommandFailure) {
        guard SystemUser.current.isRoot else { return }
        var way: [PathFacts] = []
        let facts: PathFacts
        do throws(PathObstacle) {
            facts = try PathAccess.require([], to: directory) { way.append($0) }
        } catch {
            // Opening the spool reports the error.
            return
        }
        guard facts.owner != 0 else { return try requireSafety(of: facts, way) }
        let owner = SystemUser(number: facts.owner, group: facts.group)
        do throws(SystemError) {
            try owner.become()
        } catch {
            throw CommandFailure(
                .noPermission,
                "\(directory) belongs to user \(owner.name), but root cannot become that user: \(error); "
                    + "run the command as that user: sudo -u \(owner.name) spoolgate ..."
            )
        }
    }

    /// Throws if a user other than root can put another directory in place of root's spool.
    ///
    /// `way` has the directories and links that lead to the spool, and the spool.
    private static func requireSafety(
        of facts: PathFacts,
        _ way: [PathFacts]
    ) throws(CommandFailure) {
        for step in way {
            let isSticky = step.permissions & 0o1000 != 0
            let isOpen = step.isDirectory && step.permissions & 0o022 != 0 && !isSticky
            guard step.owner != 0 || isOpen else { continue }
            throw CommandFailure(
                .noPermission,
                "\(facts.path) belongs to root, but \(step.path) (\(step.description)) lets other users "
                    + "replace it; chown the spool to the daemon's user, or run chown -h root: and chmod go-w on "
                    + "\(step.path)"
            )
        }
    }
}
