// A user of the system: found by name, and become by a process that may.

import Glibc

/// One user, with the group that goes with it.
package struct SystemUser: Sendable, Equatable {
    /// Its name; its number where it has none.
    package let name: String
    /// Its number.
    package let number: UInt32
    /// The number of its own group.
    package let group: UInt32

    /// The user as which this process reaches files.
    package static var current: SystemUser {
        SystemUser(name: name(ofUser: geteuid()), number: geteuid(), group: getegid())
    }

    /// Whether it is the one to whom every file is open.
    package var isRoot: Bool { number == 0 }

    private init(name: String, number: UInt32, group: UInt32) {
        (self.name, self.number, self.group) = (name, number, group)
    }

    /// Finds a user by name; nil if there is none, or the system cannot say.
    package init?(named name: String) {
        guard let entry = getpwnam(name) else { return nil }
        self.init(name: name, number: entry.pointee.pw_uid, group: entry.pointee.pw_gid)
    }

    /// Makes this process that user, with all of its groups, for good.
    ///
    /// - Throws: `SystemError`; EPERM where the process may not. It may then have the groups already.
    package func become() throws(SystemError) {
        try SystemError.check(initgroups(name, group), "initgroups", on: name)
        try SystemError.check(setgid(group), "setgid", on: name)
        try SystemError.check(setuid(number), "setuid", on: name)
    }

    /// Whether this process's user belongs to a group.
    package static func isMember(ofGroup group: UInt32) -> Bool {
        var groups = [gid_t](repeating: 0, count: Int(max(0, getgroups(0, nil))))
        let count = getgroups(Int32(groups.count), &groups)
        return getegid() == group || groups.prefix(Int(max(0, count))).contains(group)
    }

    /// The number of a group; nil if there is none of that name.
    package static func group(named name: String) -> UInt32? {
        getgrnam(name).map { $0.pointee.gr_gid }
    }

    /// The name of a group; its number where it has none.
    package static func name(ofGroup group: UInt32) -> String {
        getgrgid(group).map { String(cString: $0.pointee.gr_name) } ?? "\(group)"
    }

    /// The name of a user; its number where it has none.
    package static func name(ofUser user: UInt32) -> String {
        getpwuid(user).map { String(cString: $0.pointee.pw_name) } ?? "\(user)"
    }
}
