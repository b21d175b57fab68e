// A model of the real directory: the written data and its durable part.
//
// Content: a file has durable bytes and the sectors written since; fdatasync makes those and the size durable. A failed
// fdatasync makes nothing durable and forgets the sectors, as Linux does: the next one succeeds without writing them. A
// block whose durable bytes are overwritten can be lost as a whole, also after a failed fdatasync; a block that is only
// extended keeps them.
//
// Names: a directory has durable entries and an ordered list of changes, which its fsync makes durable. Syncing a file
// makes none of its names durable.
//
// `PowerCut` decides about the rest. Invariant: synced data is never lost.

import Foundation

package struct DiskModel: Sendable {
    /// A file or directory, independent of its names.
    package typealias Node = Int

    /// The unit that a disk writes completely or not at all.
    package static let sector = 512
    /// The unit that a disk can lose while writing to it.
    package static let block = 4096
    package static let root: Node = 0

    package struct File: Sendable {
        package var durable: [UInt8] = []
        package var current: [UInt8] = []
        /// The sectors of `current` that the next fdatasync writes.
        package var dirty: Set<Int> = []
        /// Blocks whose durable bytes were overwritten since.
        package var overwritten: Set<Int> = []
        /// The overwritten blocks that a failed fdatasync may have written.
        package var doubtful: Set<Int> = []
        /// No older bytes may stay beyond this size.
        package var leastSize = 0
        /// The sizes since the last fdatasync.
        package var sizes: [Int] = [0]

        /// fdatasync makes these bytes durable; they differ from `current` after a failed one.
        package var flushed: [UInt8] {
            var bytes = Array(durable.prefix(leastSize))
            bytes.resize(to: current.count)
            for sector in dirty { bytes.copySector(sector, from: current) }
            return bytes
        }

        /// The range of bytes that a power failure may destroy in each block.
        package var losable: [Range<Int>] {
            let size = DiskModel.block
            let added = Set(dirty.map { $0 * DiskModel.sector / size })
            let kept = min(durable.count, leastSize)
            return added.union(overwritten).union(doubtful).sorted().map { block in
                let isWhole = overwritten.contains(block) || doubtful.contains(block)
                let start = isWhole ? block * size : max(block * size, kept)
                return start..<max(start, (block + 1) * size)
            }
        }
    }

    package struct Change: Sendable {
        package var name: String
        /// nil if the name is removed.
        package var node: Node?
        /// Among all changes; both changes of a rename share one.
        package var order: Int
        package var isMove = false
    }

    package struct Folder: Sendable {
        package var durable: [String: Node] = [:]
        package var changes: [Change] = []

        package func entries(after count: Int) -> [String: Node] {
            var entries = durable
            for change in changes.prefix(count) { entries[change.name] = change.node }
            return entries
        }
    }

    package private(set) var files: [Node: File] = [:]
    package private(set) var folders: [Node: Folder] = [root: Folder()]
    /// If the file system keeps their order, all changes up to this one survive.
    package private(set) var ordered = 0
    private var lastOrder = 0
    private var lastNode = root

    package init() {}

    // MARK: Queries

    package func node(_ path: String) -> Node? {
        var node = Self.root
        for name in path.split(separator: "/") where name != "." {
            guard let folder = folders[node] else { return nil }
            // The newest change counts; the list is short.
            if let change = folder.changes.last(where: { $0.name == name }) {
                guard let next = change.node else { return nil }
                node = next
            } else {
                guard let next = folder.durable[String(name)] else { return nil }
                node = next
            }
        }
        return node
    }

    package var paths: [String: Node] {
        tree(entries: folders.mapValues { $0.entries(after: $0.changes.count) }).files
    }

    package func tree(entries: [Node: [String: Node]]) -> (
        files: [String: Node], folders: Set<String>
    ) {
        var found: [String: Node] = [:]
        var seen: Set<String> = []
        func walk(_ node: Node, _ path: String) {
            for (name, child) in entries[node] ?? [:] {
                let below = path.isEmpty ? name : "\(path)/\(name)"
                if files[child] != nil {
                    found[below] = child
                } else {
                    seen.insert(below)
                    walk(child, below)
                }
            }
        }
        walk(Self.root, "")
        return (found, seen)
    }

    // MARK: Changes

    /// Makes a file or directory without a name.
    package mutating func make(isFolder: Bool) -> Node {
        lastNode += 1
        if isFolder { folders[lastNode] = Folder() } else { files[lastNode] = File() }
        return lastNode
    }

    package mutating func write(_ bytes: [UInt8], to node: Node, at position: Int) {
        files[node]?.write(bytes, at: position)
    }

    package mutating func truncate(_ node: Node, to size: Int) { files[node]?.truncate(to: size) }

    package mutating func sync(_ node: Node, succeeds: Bool = true) {
        files[node]?.sync(succeeds: succeeds)
    }

    package mutating func syncFolder(_ path: String) {
        guard let node = node(path), let folder = folders[node] else { return }
        ordered = max(ordered, folder.changes.last?.order ?? 0)
        folders[node] = Folder(durable: folder.entries(after: folder.changes.count))
        for change in folder.changes where change.isMove && change.node == nil {
            keepAddition(of: change.order)
        }
    }

    package mutating func syncAll() {
        for node in files.keys { sync(node) }
        for (node, folder) in folders {
            folders[node] = Folder(durable: folder.entries(after: folder.changes.count))
        }
        ordered = lastOrder
    }

    /// Makes both entries of a move durable together: a moved file is never lost.
    private mutating func keepAddition(of move: Int) {
        for (node, folder) in folders {
            let index = folder.changes.firstIndex {
                $0.isMove && $0.order == move && $0.node != nil
            }
            guard let index else { continue }
            folders[node]?.durable = folder.entries(after: index + 1)
            folders[node]?.changes.removeFirst(index + 1)
            // Earlier changes in that directory may be moves out of it.
            for change in folder.changes[..<index] where change.isMove && change.node == nil {
                keepAddition(of: change.order)
            }
        }
    }

    package mutating func enter(_ node: Node?, as path: String) {
        lastOrder += 1
        add(node, path, isMove: false)
    }

    package mutating func rename(_ source: String, to target: String) {
        guard let node = node(source) else { preconditionFailure("nothing is at '\(source)'") }
        // If both are one file, both stay (rename(2)).
        guard node != self.node(target) else { return }
        lastOrder += 1
        add(node, target, isMove: true)
        add(nil, source, isMove: true)
    }

    private mutating func add(_ node: Node?, _ path: String, isMove: Bool) {
        let parts = path.split(separator: "/")
        guard let name = parts.last,
            let parent = self.node(parts.dropLast().joined(separator: "/"))
        else { preconditionFailure("'\(path)' has no directory") }
        folders[parent]?.changes.append(
            Change(name: String(name), node: node, order: lastOrder, isMove: isMove)
        )
    }
}

extension DiskModel {
    /// All that is left after a power failure is durable.
    package init(files: [Node: [UInt8]], entries: [Node: [String: Node]], of old: DiskModel) {
        for (node, bytes) in files {
            var file = File(durable: bytes, current: bytes)
            file.leastSize = bytes.count
            file.sizes = [bytes.count]
            self.files[node] = file
        }
        folders = entries.mapValues { Folder(durable: $0) }
        lastNode = old.lastNode
        lastOrder = old.lastOrder
        ordered = lastOrder
    }
}

extension DiskModel.File {
    fileprivate mutating func write(_ bytes: [UInt8], at position: Int) {
        guard !bytes.isEmpty else { return }
        let end = position + bytes.count
        if current.count < end { current.resize(to: end) }
        current.withUnsafeMutableBytes { all in
            UnsafeMutableRawBufferPointer(rebasing: all[position..<end]).copyBytes(from: bytes)
        }
        let sector = DiskModel.sector
        dirty.formUnion(position / sector...(end - 1) / sector)
        let lastKept = min(end, min(durable.count, leastSize)) - 1
        if position <= lastKept {
            overwritten.formUnion(position / DiskModel.block...lastKept / DiskModel.block)
        }
        sizes.append(current.count)
    }

    fileprivate mutating func truncate(to size: Int) {
        current.resize(to: size)
        leastSize = min(leastSize, size)
        let sectors = (size + DiskModel.sector - 1) / DiskModel.sector
        dirty = dirty.filter { $0 < sectors }
        sizes.append(size)
    }

    fileprivate mutating func sync(succeeds: Bool) {
        if succeeds {
            doubtful.subtract(dirty.map { $0 * DiskModel.sector / DiskModel.block })
            durable = flushed
            leastSize = durable.count
            sizes = [durable.count]
        } else {
            doubtful.formUnion(overwritten)
        }
        (dirty, overwritten) = ([], [])
    }
}

extension [UInt8] {
    package mutating func resize(to size: Int) {
        if count > size { removeLast(count - size) }
        if count < size { self += [UInt8](repeating: 0, count: size - count) }
    }

    /// As far as both files have it.
    package mutating func copySector(_ sector: Int, from source: [UInt8]) {
        let start = sector * DiskModel.sector
        let end = Swift.min(start + DiskModel.sector, Swift.min(count, source.count))
        guard start < end else { return }
        withUnsafeMutableBytes { all in
            let target = UnsafeMutableRawBufferPointer(rebasing: all[start..<end])
            source.withUnsafeBytes { target.copyMemory(from: .init(rebasing: $0[start..<end])) }
        }
    }

    /// In one call, for speed.
    package func begins(with other: [UInt8]) -> Bool {
        guard other.count <= count else { return false }
        return other.isEmpty || memcmp(self, other, other.count) == 0
    }
}
