// Finds the file or directory that prevents access to a path, without opening files.

import Glibc

/// Access rights.
package struct AccessRights: OptionSet, Sendable {
    package let rawValue: Int32

    /// Creates rights from the bits of access(2).
    package init(rawValue: Int32) { self.rawValue = rawValue }

    package static let read = AccessRights(rawValue: R_OK)
    /// The right to change a file, or the names in a directory.
    package static let write = AccessRights(rawValue: W_OK)
    /// The right to execute a file, or to reach the files in a directory.
    package static let search = AccessRights(rawValue: X_OK)
    package static let all: AccessRights = [.read, .write, .search]
}

/// The properties of a file or directory that decide who can access it.
package struct PathFacts: Sendable, Equatable {
    /// The path, with symbolic links resolved.
    package var path: String
    /// The owner's user ID.
    package var owner: UInt32
    /// The group's ID.
    package var group: UInt32
    package var permissions: UInt32
    package var isDirectory: Bool

    /// The owner, group and mode, such as `owner root, group root, mode 0755`.
    package var description: String {
        let mode = String(permissions, radix: 8)
        return "owner \(SystemUser.name(ofUser: owner)), group \(SystemUser.name(ofGroup: group)), "
            + "mode \(String(repeating: "0", count: max(0, 4 - mode.count)))\(mode)"
    }
}

/// The reason why a path cannot be used.
package enum PathObstacle: Error, Sendable, Equatable {
    /// A name is missing. `isLast` is false for a directory above the requested path.
    case missing(path: String, isLast: Bool)
    /// A component is not a directory.
    case notDirectory(PathFacts)
    /// These rights are missing. `isLast` is false for a directory above the requested path.
    case denied(PathFacts, AccessRights, isLast: Bool)
    case readOnly(PathFacts)
    case failed(SystemError)
}

/// Resolves paths like the kernel does for this process.
package enum PathAccess {
    /// The maximum number of symbolic links that the kernel follows in one path.
    private static let maximumLinks = 40

    /// Checks that this process has `rights` to an absolute path.
    ///
    /// `visit` receives the properties of each directory and symbolic link on the way, and of the result.
    ///
    /// - Returns: the properties of the file or directory.
    /// - Throws: the first `PathObstacle` found on the way from the root.
    package static func require(
        _ rights: AccessRights,
        to path: String,
        visit: (PathFacts) -> Void = { _ in }
    ) throws(PathObstacle) -> PathFacts {
        var rest = names(of: path)
        var reached = "/"
        var links = 0
        while let name = rest.popLast() {
            visit(try require(.search, at: reached, isLast: false))
            if name == "." { continue }
            if name == ".." {
                reached = parent(of: reached)
                continue
            }
            let next = reached == "/" ? "/\(name)" : "\(reached)/\(name)"
            guard let target = try link(at: next, isLast: rest.isEmpty) else {
                reached = next
                continue
            }
            visit(try facts(of: next))
            links += 1
            guard links <= maximumLinks else {
                throw .failed(SystemError(call: "open", subject: path, errno: ELOOP))
            }
            if target.hasPrefix("/") { reached = "/" }
            rest += names(of: target)
        }
        let result = try require(rights, at: reached, isLast: true)
        visit(result)
        return result
    }

    /// Returns the path of the directory that contains `path`.
    package static func parent(of path: String) -> String {
        var rest = Substring(path)
        while rest.count > 1, rest.hasSuffix("/") { rest.removeLast() }
        rest = rest[..<(rest.lastIndex(of: "/") ?? rest.startIndex)]
        while rest.hasSuffix("/") { rest.removeLast() }
        return rest.isEmpty ? "/" : String(rest)
    }

    /// Returns the components of a path, the last component first.
    private static func names(of path: String) -> [String] {
        path.split(separator: "/").reversed().map(String.init)
    }

    /// Returns a symbolic link's target, or nil if `path` is not a symbolic link.
    private static func link(at path: String, isLast: Bool) throws(PathObstacle) -> String? {
        var raw = stat()
        guard lstat(path, &raw) == 0 else {
            if errno == ENOENT { throw .missing(path: path, isLast: isLast) }
            throw .failed(SystemError("lstat", on: path))
        }
        guard raw.st_mode & S_IFMT == S_IFLNK else { return nil }
        var target = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = readlink(path, &target, target.count)
        guard count >= 0 else { throw .failed(SystemError("readlink", on: path)) }
        return String(decoding: target.prefix(count).map(UInt8.init(bitPattern:)), as: UTF8.self)
    }

    private static func facts(of path: String) throws(PathObstacle) -> PathFacts {
        var raw = stat()
        guard lstat(path, &raw) == 0 else { throw .failed(SystemError("lstat", on: path)) }
        return PathFacts(
            path: path,
            owner: raw.st_uid,
            group: raw.st_gid,
            permissions: raw.st_mode & 0o7777,
            isDirectory: raw.st_mode & S_IFMT == S_IFDIR
        )
    }

    private static func require(
        _ rights: AccessRights,
        at path: String,
        isLast: Bool
    ) throws(PathObstacle) -> PathFacts {
        let facts = try facts(of: path)
        guard isLast || facts.isDirectory else { throw .notDirectory(facts) }
        guard faccessat(AT_FDCWD, path, rights.rawValue, AT_EACCESS) != 0 else { return facts }
        switch errno {
        case EROFS: throw .readOnly(facts)
        case EACCES, EPERM: throw .denied(facts, missing(of: rights, to: path), isLast: isLast)
        default: throw .failed(SystemError("faccessat", on: path))
        }
    }

    private static func missing(of rights: AccessRights, to path: String) -> AccessRights {
        var missing: AccessRights = []
        for right in [AccessRights.read, .write, .search]
        where rights.contains(right)
            && faccessat(AT_FDCWD, path, right.rawValue, AT_EACCESS) != 0
        {
            missing.insert(right)
        }
        return missing
    }
}
