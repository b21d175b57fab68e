// Root works in a spool only as the spool's owner.
//
// The owner could otherwise make root follow a link, or change a file of root. Invariant: after `become`, the process
// has no way back to root, and has opened nothing that the owner controls.

import SpoolgatePosix

/// The user to whom a spool directory belongs.
enum SpoolOwner {
    /// Makes this process run as the owner of a spool for good, if root runs it; does nothing if the spool is missing.
    ///
    /// Call it before anything in the spool, or in another directory of the daemon, is opened.
    ///
    /// - Throws: `.noPermission` if root cannot become that user, or if the spool belongs to root, but another user can
    ///   replace it.
    static func become(ofSpool directory: String) throws(CommandFailure) {
        guard SystemUser.current.isRoot else { return }
        let facts: PathFacts
        do throws(PathObstacle) {
            facts = try PathAccess.require([], to: directory)
        } catch {
            // Opening the spool reports the error.
            return
        }
        guard facts.owner != 0 else { return try requireSafety(of: facts) }
        let owner = SystemUser(number: facts.owner, group: facts.group)
        do throws(SystemError) {
            try owner.become()
        } catch {
            throw CommandFailure(
                code: .noPermission,
                sentence:
                    "\(directory) belongs to user \(owner.name), but root cannot become that user: \(error); "
                    + "run the command as that user: sudo -u \(owner.name) spoolgate ..."
            )
        }
    }

    /// Throws if a user other than root can put another directory in place of root's spool.
    private static func requireSafety(of facts: PathFacts) throws(CommandFailure) {
        var path = facts.path
        while path != "/" {
            path = PathAccess.parent(of: path)
            guard let above = try? PathAccess.require([], to: path) else { continue }
            let isSticky = above.permissions & 0o1000 != 0
            let isOpen = above.owner != 0 || above.permissions & 0o022 != 0 && !isSticky
            guard isOpen else { continue }
            throw CommandFailure(
                code: .noPermission,
                sentence:
                    "\(facts.path) belongs to root, but \(above.path) (\(above.description)) lets other users "
                    + "replace it; chown the spool to the daemon's user, or run chown root: and chmod go-w on "
                    + "\(above.path)"
            )
        }
    }
}
