// The files below a directory, in the order of their names.
//
// The invariants: links are followed only on request, a loop of links ends, and every skipped path is reported.

import Glibc
import SpoolgatePosix

enum TreeFileKind: Equatable {
    case regular, directory, link
    /// A device, a socket or a named pipe.
    case special(String)

    static func of(
        _ path: FilePath,
        isFollowing: Bool
    ) throws(SystemError) -> Evidence {
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
        return Evidence(kind: kind, identity: FileIdentity(status), size: Int64(status.st_size))
    }

    struct Evidence {
        var kind: TreeFileKind
        var identity: FileIdentity
        /// The size in bytes, for a regular file.
        var size: Int64
    }
}

struct TreeWalk {
    let isFollowing: Bool
    /// Receives each regular file: its path, the parts of its path below the directory, and its size in bytes.
    let found: (FilePath, [[UInt8]], _ size: Int64) -> Void
    /// Receives each skipped path, with the reason.
    let leftOut: (FilePath, String) -> Void
    /// Receives the error for each path that could not be read.
    let failed: (SystemError) -> Void

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

    /// Returns the names, sorted by their bytes.
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
