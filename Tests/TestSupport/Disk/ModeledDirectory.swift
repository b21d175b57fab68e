// A real directory, and the model of its durable part, from which a power failure rebuilds it.
//
// Invariant: every change below the directory's modeled part goes through a `Disk` whose witness calls `note`.

import Foundation
import SpoolgatePosix

package struct ModeledDirectory: Sendable {
    package let root: String
    package var model = DiskModel()
    /// The nodes by inode number.
    private var nodes: [UInt: DiskModel.Node] = [:]

    package init(root: String) { self.root = root }

    /// nil for a file that a power failure has taken, which only a process that died then still has open.
    package func node(_ file: Int32) -> DiskModel.Node? { nodes[Self.number(file)] }

    package func node(inode: UInt) -> DiskModel.Node? { nodes[inode] }

    /// `path` below the root.
    package func relative(_ path: String) -> String {
        // UTF-8, because it is called for every call of a sweep.
        guard path.utf8.starts(with: root.utf8) else { return path }
        let below = Substring(path.utf8.dropFirst(root.utf8.count).drop { $0 == UInt8(ascii: "/") })
        guard below.hasSuffix("/..") else { return String(below) }
        return below.split(separator: "/").dropLast(2).joined(separator: "/")
    }

    /// Enters a change into the model; returns the bytes that were written.
    @discardableResult
    package mutating func note(_ effect: Disk.Effect) -> [UInt8] {
        switch effect {
        case .created(let file, let path):
            let node = model.make(isFolder: false)
            nodes[Self.number(file)] = node
            if let path { model.enter(node, as: relative(path)) }
        case .createdEmpty(let path):
            let path = relative(path)
            guard model.node(path) == nil else { return [] }
            model.enter(model.make(isFolder: false), as: path)
        case .madeDirectory(let path):
            let path = relative(path)
            guard model.node(path) == nil else { return [] }
            model.enter(model.make(isFolder: true), as: path)
        case .wrote(let file, let position, let count):
            let bytes = Self.bytes(file, at: position, count)
            if let node = node(file) { model.write(bytes, to: node, at: Int(position)) }
            return bytes
        case .truncated(let file, let size):
            if let node = node(file) { model.truncate(node, to: Int(size)) }
        case .synced(let file): if let node = node(file) { model.sync(node) }
        case .syncedDirectory(let path): model.syncFolder(relative(path))
        case .syncedFileSystem: model.syncAll()
        case .linked(let file, let path):
            if let node = node(file) { model.enter(node, as: relative(path)) }
        case .renamed(let source, let target): model.rename(relative(source), to: relative(target))
        case .unlinked(let path): model.enter(nil, as: relative(path))
        }
        return []
    }

    private static func bytes(_ file: Int32, at position: Int64, _ count: Int) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        // `file` may be write-only.
        let readable = open("/proc/self/fd/\(file)", O_RDONLY | O_CLOEXEC)
        let read = pread(readable, &bytes, count, off_t(position))
        close(readable)
        precondition(read == count, "written bytes cannot be read")
        return bytes
    }

    private static func number(_ file: Int32) -> UInt {
        var raw = stat()
        precondition(fstat(file, &raw) == 0, "the file is not open")
        return UInt(raw.st_ino)
    }

    /// Cuts the power: the directory and the model become what is left.
    ///
    /// Files keep their times; one whose removal is lost gets `time`, or the current one. A file may be missing, because
    /// a process that dies may be between a call and its note.
    package mutating func rebuild(after cut: PowerCut, at time: timespec? = nil) throws {
        let new = cut.after(model)
        let was = model.tree(entries: model.folders.mapValues { $0.entries(after: .max) })
        let tree = new.tree(entries: new.folders.mapValues { $0.durable })
        var times: [DiskModel.Node: timespec] = [:]
        for (path, node) in was.files {
            var raw = stat()
            if lstat("\(root)/\(path)", &raw) == 0, unlink("\(root)/\(path)") == 0 {
                times[node] = raw.st_mtim
            } else if errno != ENOENT {
                throw SystemError("unlink", on: path)
            }
        }
        for path in was.folders.subtracting(tree.folders).sorted().reversed() {
            guard rmdir("\(root)/\(path)") == 0 else { throw SystemError("rmdir", on: path) }
        }
        for path in tree.folders.subtracting(was.folders).sorted() {
            guard mkdir("\(root)/\(path)", 0o700) == 0 else { throw SystemError("mkdir", on: path) }
        }
        nodes = [:]
        var made: [DiskModel.Node: String] = [:]
        for (path, node) in tree.files.sorted(by: { $0.key < $1.key }) {
            let whole = "\(root)/\(path)"
            if let first = made[node] {
                guard link(first, whole) == 0 else { throw SystemError("link", on: path) }
                continue
            }
            made[node] = whole
            let bytes = new.files[node]?.durable ?? []
            let file = open(whole, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
            guard file >= 0, Glibc.write(file, bytes, bytes.count) == bytes.count else {
                throw SystemError("write", on: path)
            }
            nodes[Self.number(file)] = node
            if let changed = times[node] ?? time { _ = futimens(file, [changed, changed]) }
            close(file)
        }
        model = new
    }
}
