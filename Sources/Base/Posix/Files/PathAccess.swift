// What this process may do with a path, and which file or directory on the way stands against it.
//
// It walks the path name by name, as the kernel does, and follows links. It only looks: nothing is opened.

import Glibc

/// Rights of a process to a file or directory.
package struct AccessRights: OptionSet, Sendable {
    /// The bits of access(2).
    package let rawValue: Int32

    /// Makes rights from the bits of access(2).
    package init(rawValue: Int32) { self.rawValue = rawValue }

    /// To read it, or a directory's names.
    package static let read = AccessRights(rawValue: R_OK)
    /// To change it, or a directory's names.
    package static let write = AccessRights(rawValue: W_OK)
    /// To run it, or to reach what is in a directory.
    package static let search = AccessRights(rawValue: X_OK)
    /// All that can be done with a directory.
    package static let all: AccessRights = [.read, .write, .search]
}

/// A file or directory as permissions see it.
package struct PathFacts: Sendable, Equatable {
    /// The path, without links.
    package var path: String
    /// The number of the user it belongs to.
    package var owner: UInt32
    /// The number of the group it belongs to.
    package var group: UInt32
    /// Its permission bits.
    package var permissions: UInt32
    /// Whether it is a directory.
    package var isDirectory: Bool

    /// `owner root, group root, mode 0755`.
    package var description: String {
        let mode = String(permissions, radix: 8)
        return "owner \(SystemUser.name(ofUser: owner)), group \(SystemUser.name(ofGroup: group)), "
            + "mode \(String(repeating: "0", count: max(0, 4 - mode.count)))\(mode)"
    }
}

/// Why a path cannot be used.
package enum PathObstacle: Error, Sendable, Equatable {
    /// Nothing has this path; `isLast`: it is the one asked for, and not a directory above it.
    case missing(path: String, isLast: Bool)
    /// A part of the path is no directory.
    case notDirectory(PathFacts)
    /// These rights are missing to the path asked for, or, where not `isLast`, to a directory above it.
    case denied(PathFacts, AccessRights, isLast: Bool)
    /// It is on a file system that is mounted read-only.
    case readOnly(PathFacts)
    /// It cannot even be looked at.
    case failed(SystemError)
}

/// Looks at paths as the kernel would use them for this process.
package enum PathAccess {
    /// As many links as the kernel follows.
    private static let mostLinks = 40

    /// Looks whether this process has `rights` to an absolute path.
    ///
    /// - Returns: what is there.
    /// - Throws: `PathObstacle`, the first on the way.
    package static func require(
        _ rights: AccessRights,
        to path: String
    ) throws(PathObstacle) -> PathFacts {
        var rest = names(of: path)
        var reached = "/"
        var links = 0
        while let name = rest.popLast() {
            try require(.search, at: reached, isLast: false)
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
            links += 1
            guard links <= mostLinks else {
                throw .failed(SystemError(call: "open", subject: path, errno: ELOOP))
            }
            if target.hasPrefix("/") { reached = "/" }
            rest += names(of: target)
        }
        return try require(rights, at: reached, isLast: true)
    }

    /// The directory that a path's last name is in.
    package static func parent(of path: String) -> String {
        var rest = Substring(path)
        while rest.count > 1, rest.hasSuffix("/") { rest.removeLast() }
        rest = rest[..<(rest.lastIndex(of: "/") ?? rest.startIndex)]
        while rest.hasSuffix("/") { rest.removeLast() }
        return rest.isEmpty ? "/" : String(rest)
    }

    /// The names of a path, the last one first.
    private static func names(of path: String) -> [String] {
        path.split(separator: "/").reversed().map(String.init)
    }

    /// Where the link at `path` leads; nil where it is none.
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

    @discardableResult
    private static func require(
        _ rights: AccessRights,
        at path: String,
        isLast: Bool
    ) throws(PathObstacle) -> PathFacts {
        var raw = stat()
        guard lstat(path, &raw) == 0 else { throw .failed(SystemError("lstat", on: path)) }
        let facts = PathFacts(
            path: path,
            owner: raw.st_uid,
            group: raw.st_gid,
            permissions: raw.st_mode & 0o7777,
            isDirectory: raw.st_mode & S_IFMT == S_IFDIR
        )
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
