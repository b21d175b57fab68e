// The files below a directory, by name.
//
// The invariants: a link is followed only if it was asked for, a loop of links ends, and what is left out is told.

import Glibc
import SpoolgatePosix

/// What kind of file a path names.
enum TreeFileKind: Equatable {
    case regular, directory, link
    /// A device, a socket or a named pipe.
    case special(String)

    /// Looks at a path; follows a link if `isFollowing`.
    ///
    /// - Throws: the error of the call, which names the path.
    static func of(
        _ path: FilePath,
        isFollowing: Bool
    ) throws(SystemError) -> Seen {
        var status = stat()
        let result = path.withPointer { isFollowing ? stat($0, &status) : lstat($0, &status) }
        guard result == 0 else { throw SystemError(isFollowing ? "stat" : "lstat", on: path.shown) }
        let kind: TreeFileKind =
            switch status.st_mode & S_IFMT {
            case S_IFREG: .regular
            case S_IFDIR: .directory
            case S_IFLNK: .link
            case S_IFIFO: .special("a named pipe")
            case S_IFSOCK: .special("a socket")
            default: .special("a device")
            }
        return Seen(kind: kind, identity: FileIdentity(status), size: Int64(status.st_size))
    }

    /// What a look at a path shows.
    struct Seen {
        /// What kind of file it is.
        var kind: TreeFileKind
        /// Which file it is.
        var identity: FileIdentity
        /// Bytes of its content, if it is a regular file.
        var size: Int64
    }
}

/// A walk through one directory and those below it.
struct TreeWalk {
    /// Whether symbolic links are followed.
    let isFollowing: Bool
    /// Told of each regular file: its path, and the names below the directory that was begun with.
    let found: (FilePath, [[UInt8]], _ size: Int64) -> Void
    /// Told of each path that is left out, and why.
    let leftOut: (FilePath, String) -> Void
    /// Told of each path that could not be looked at.
    let failed: (SystemError) -> Void

    /// Walks through `directory`, in the order of the names' bytes.
    func walk(_ directory: FilePath) {
        do throws(SystemError) {
            let identity = try TreeFileKind.of(directory, isFollowing: true).identity
            try walk(directory, [], inside: [identity])
        } catch {
            failed(error)
        }
    }

    private func walk(
        _ directory: FilePath,
        _ below: [[UInt8]],
        inside parents: [FileIdentity]
    ) throws(SystemError) {
        for name in try names(in: directory) {
            let path = directory.appending(name)
            do throws(SystemError) {
                try look(at: path, below + [name], inside: parents)
            } catch {
                failed(error)
            }
        }
    }

    private func look(
        at path: FilePath,
        _ below: [[UInt8]],
        inside parents: [FileIdentity]
    ) throws(SystemError) {
        let seen = try TreeFileKind.of(path, isFollowing: isFollowing)
        switch seen.kind {
        case .regular: found(path, below, seen.size)
        case .directory where parents.contains(seen.identity):
            leftOut(path, "a link to a directory that contains it")
        case .directory: try walk(path, below, inside: parents + [seen.identity])
        case .link: leftOut(path, "a symbolic link; use --follow to send its target")
        case .special(let what): leftOut(path, what)
        }
    }

    /// The names in a directory, sorted by their bytes.
    private func names(in directory: FilePath) throws(SystemError) -> [[UInt8]] {
        guard let stream = directory.withPointer({ opendir($0) }) else {
            throw SystemError("opendir", on: directory.shown)
        }
        defer { closedir(stream) }
        var names: [[UInt8]] = []
        while true {
            errno = 0
            guard let entry = readdir(stream) else {
                guard errno == 0 else { throw SystemError("readdir", on: directory.shown) }
                return names.sorted { $0.lexicographicallyPrecedes($1) }
            }
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
            if name != Array(".".utf8), name != Array("..".utf8) { names.append(name) }
        }
    }
}
