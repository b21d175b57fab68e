// Errors for paths in the settings that the daemon's user cannot use: each states the file or directory, its state, and
// a command that fixes it.
//
// Invariant: no command makes a secret readable for all users, or changes more than the named file or directory.

import SpoolgatePosix
import SpoolgateTextFormats

/// How the daemon uses a path in the settings.
enum PathUse {
    /// A directory for the daemon's own files.
    case ownDirectory
    /// A directory for files that another program uses.
    case sharedDirectory
    /// A directory for a file or socket.
    case place
    /// A file to read.
    case file
    /// A file to append to.
    case log
    case program
    case socket

    var rights: AccessRights { row.rights }
    fileprivate var verb: String { row.verb }
    var isDirectory: Bool { row.isDirectory }

    private var row: (rights: AccessRights, verb: String, isDirectory: Bool) {
        switch self {
        case .ownDirectory, .sharedDirectory: (.all, "write to", true)
        case .place: ([.write, .search], "create files in", true)
        case .file: (.read, "read", false)
        case .log: (.write, "write to", false)
        case .program: (.search, "run", false)
        case .socket: (.write, "connect to", false)
        }
    }
}

struct PathFault {
    let user: SystemUser
    let use: PathUse
    let path: String

    /// Returns a sentence that ends with a command if a command can remove the obstacle.
    func sentence(_ obstacle: PathObstacle) -> String {
        switch obstacle {
        case .missing(let missing, let isLast):
            let place = isLast ? "" : " (needed for \(path))"
            return "\(missing) does not exist\(place); \(fixForMissing)"
        case .notDirectory(let facts):
            return "\(facts.path) is not a directory (\(facts.description)); use another path"
        case .readOnly(let facts):
            return "user \(user.name) cannot \(use.verb) \(facts.path) (\(facts.description)): its "
                + "file system is mounted read-only; remount it read-write, or, if a systemd unit "
                + "protects it, add it to ReadWritePaths= of the unit"
        case .denied(let facts, let rights, isLast: false):
            return "user \(user.name) cannot reach \(path): no search permission on \(facts.path) "
                + "(\(facts.description)); \(fixForPassage(facts, rights))"
        case .denied(let facts, let rights, isLast: true):
            return "user \(user.name) cannot \(use.verb) \(facts.path) (\(facts.description)); "
                + fix(facts, rights)
        case .failed(let error): return "\(error)"
        }
    }

    /// Returns a sentence about a directory, or an entry in `directory`, that the user does not own but can access.
    func sentence(notOwn facts: PathFacts, in directory: String? = nil) -> String {
        "\(facts.path) does not belong to user \(user.name) (\(facts.description)); "
            + (directory.map { "chown -R \(user.name): \($0.shellWord)" } ?? chown(facts.path))
    }

    /// Returns a sentence about a missing directory that the user cannot create.
    func sentence(notMade obstacle: PathObstacle) -> String {
        guard case .denied(let facts, _, isLast: true) = obstacle else { return sentence(obstacle) }
        return "\(path) does not exist, and user \(user.name) cannot create it in \(facts.path) "
            + "(\(facts.description)); \(fixForMissing)"
    }

    private var groupName: String { SystemUser.name(ofGroup: user.group) }

    private func chown(_ path: String) -> String { "chown \(user.name): \(path.shellWord)" }

    private var fixForMissing: String {
        let make = "install -d -o \(user.name) -g \(groupName) -m"
        switch use {
        case .ownDirectory: return "\(make) 0700 \(path.shellWord)"
        case .sharedDirectory: return "\(make) 2770 \(path.shellWord)"
        case .place: return "\(make) 0755 \(path.shellWord)"
        case .file, .log: return "create it, or correct the path in the settings"
        case .program: return "install it, or correct the path in the settings"
        case .socket: return "start the server that listens there"
        }
    }

    /// Returns the class of permission bits that applies to the user, for chmod(1).
    private func part(_ facts: PathFacts) -> String {
        if facts.owner == user.number { return "u" }
        return SystemUser.isMember(ofGroup: facts.group) ? "g" : "o"
    }

    private func fixForPassage(_ facts: PathFacts, _ rights: AccessRights) -> String {
        let part = part(facts)
        let open = "chmod \(part)+\(rights.letters) \(facts.path.shellWord)"
        guard part == "o" else { return open }
        return "\(setACL(facts, rights)), or, for all users, \(open)"
    }

    private func fix(_ facts: PathFacts, _ rights: AccessRights) -> String {
        let part = part(facts)
        if part != "o" || use == .program {
            let whom = use == .program ? "a" : part
            return "chmod \(whom)+\(rights.letters) \(facts.path.shellWord)"
        }
        switch use {
        case .ownDirectory, .log: return chown(facts.path)
        case .file:
            let file = facts.path.shellWord
            return "chgrp \(groupName) \(file) && chmod g+\(rights.letters) \(file)"
        case .socket where facts.permissions & 0o020 != 0 && facts.group != 0:
            return
                "usermod -aG \(SystemUser.name(ofGroup: facts.group)) \(user.name), then restart "
                + "spoolgate"
        case .sharedDirectory, .place, .program, .socket: return setACL(facts, use.rights)
        }
    }

    private func setACL(_ facts: PathFacts, _ rights: AccessRights) -> String {
        "setfacl -m u:\(user.name):\(rights.letters) \(facts.path.shellWord)"
    }
}

extension AccessRights {
    /// The rights as letters for chmod(1), such as `rx`.
    fileprivate var letters: String {
        [(AccessRights.read, "r"), (.write, "w"), (.search, "x")]
            .filter { contains($0.0) }.map(\.1).joined()
    }
}
