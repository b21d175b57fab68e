// Users and groups of the system.

import Glibc

/// A user and its primary group.
package struct SystemUser: Sendable, Equatable {
    /// The user's name, or the user ID as text if the user has no name.
    package let name: String
    package let number: UInt32
    /// The ID of the user's primary group.
    package let group: UInt32

    /// The effective user of this process.
    package static var current: SystemUser {
        SystemUser(name: name(ofUser: geteuid()), number: geteuid(), group: getegid())
    }

    package var isRoot: Bool { number == 0 }

    private init(name: String, number: UInt32, group: UInt32) {
        (self.name, self.number, self.group) = (name, number, group)
    }

    /// Finds a user by name; returns nil if the user cannot be found.
    package init?(named name: String) {
        guard let entry = getpwnam(name) else { return nil }
        self.init(name: name, number: entry.pointee.pw_uid, group: entry.pointee.pw_gid)
    }

    /// Finds a user by its ID; a user without a name has only the group `group`.
    package init(number: UInt32, group: UInt32) {
        let entry = getpwuid(number)
        self.init(
            name: entry.map { String(cString: $0.pointee.pw_name) } ?? "\(number)",
            number: number,
            group: entry?.pointee.pw_gid ?? group
        )
    }

    /// Permanently makes this process run as this user, with all its groups.
    ///
    /// - Throws: EPERM if the process has no permission, or could return to root. The process's groups may then have
    ///   changed already.
    package func become() throws(SystemError) {
        try SystemError.check(initgroups(name, group), "initgroups", on: name)
        try SystemError.check(setgid(group), "setgid", on: name)
        try SystemError.check(setuid(number), "setuid", on: name)
        guard isRoot || setuid(0) != 0 else {
            throw SystemError(call: "setuid", subject: name, errno: EPERM)
        }
    }

    /// Whether this process belongs to a group.
    package static func isMember(ofGroup group: UInt32) -> Bool {
        var groups = [gid_t](repeating: 0, count: Int(max(0, getgroups(0, nil))))
        let count = getgroups(Int32(groups.count), &groups)
        return getegid() == group || groups.prefix(Int(max(0, count))).contains(group)
    }

    /// Returns the ID of a group, or nil if the group is unknown.
    package static func group(named name: String) -> UInt32? {
        getgrnam(name).map { $0.pointee.gr_gid }
    }

    /// Returns a group's name, or the ID as text if unnamed.
    package static func name(ofGroup group: UInt32) -> String {
        getgrgid(group).map { String(cString: $0.pointee.gr_name) } ?? "\(group)"
    }

    /// Returns a user's name, or the ID as text if unnamed.
    package static func name(ofUser user: UInt32) -> String {
        getpwuid(user).map { String(cString: $0.pointee.pw_name) } ?? "\(user)"
    }
}
