// What a disk has been given and what of it is durable: a model beside the real file system.
//
// Content. A file has its durable bytes and the sectors written since; fdatasync takes those over,
// size included. A failed fdatasync takes nothing over and forgets which sectors were waiting, as
// Linux does: the next one succeeds and does not write them. A block in which durable bytes are being
// written over can be lost as a whole, also after a failed fdatasync; one that is only added to keeps them.
// Names. A directory has its durable entries and an ordered list of changes; fsync of the directory
// takes all of them over. Syncing a file makes no name durable, also not its own.
//
// What a power cut does with the rest is PowerCut's choice. Invariant: what was synced is never lost.

import Foundation

/// Files and directories below one root, by paths relative to it.
struct DiskModel {
    /// A file or directory, whatever names it has.
    typealias Node = Int

    /// The unit in which a disk writes all or nothing.
    static let sector = 512
    /// The unit that it can lose while it writes there.
    static let block = 4096
    static let root: Node = 0

    /// A file.
    struct File {
        /// The bytes that survive.
        var durable: [UInt8] = []
        /// The bytes a process reads.
        var current: [UInt8] = []
        /// The sectors of `current` that the next fdatasync writes.
        var dirty: Set<Int> = []
        /// The blocks in which durable bytes were written over since.
        var overwritten: Set<Int> = []
        /// Those of them that a failed fdatasync may have written or not.
        var doubtful: Set<Int> = []
        /// The least size since the last fdatasync: beyond it nothing old may stay.
        var leastSize = 0
        /// Every size it had since.
        var sizes: [Int] = [0]

        /// What fdatasync makes durable: not always `current`, where one failed before.
        var flushed: [UInt8] {
            var bytes = Array(durable.prefix(leastSize))
            bytes.resize(to: current.count)
            for sector in dirty { bytes.copySector(sector, from: current) }
            return bytes
        }

        /// The blocks that a power cut may take now, and of each what it may take.
        var losable: [Range<Int>] {
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

    /// One change of a directory.
    struct Change {
        var name: String
        /// What the name stands for from now on; nil: nothing.
        var node: Node?
        /// Its place among all changes; the two of one rename have the same.
        var order: Int
        var isMove = false
    }

    /// A directory.
    struct Folder {
        var durable: [String: Node] = [:]
        var changes: [Change] = []

        func entries(after count: Int) -> [String: Node] {
            var entries = durable
            for change in changes.prefix(count) { entries[change.name] = change.node }
            return entries
        }
    }

    private(set) var files: [Node: File] = [:]
    private(set) var folders: [Node: Folder] = [root: Folder()]
    /// Every change up to this place survives where a file system keeps changes in their order.
    private(set) var ordered = 0
    private var lastOrder = 0
    private var lastNode = root

    // MARK: Looking

    /// What is at a path now.
    func node(_ path: String) -> Node? {
        var node = Self.root
        for name in path.split(separator: "/") where name != "." {
            guard let folder = folders[node] else { return nil }
            // The newest change of a name counts; the list is short.
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

    /// Every file by its path.
    var paths: [String: Node] {
        tree(entries: folders.mapValues { $0.entries(after: $0.changes.count) }).files
    }

    /// The files and the directories that can be reached with these entries.
    func tree(entries: [Node: [String: Node]]) -> (files: [String: Node], folders: Set<String>) {
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

    // MARK: Changing

    /// A new file or directory without a name.
    mutating func make(isFolder: Bool) -> Node {
        lastNode += 1
        if isFolder { folders[lastNode] = Folder() } else { files[lastNode] = File() }
        return lastNode
    }

    mutating func write(_ bytes: [UInt8], to node: Node, at position: Int) {
        files[node]?.write(bytes, at: position)
    }

    mutating func truncate(_ node: Node, to size: Int) { files[node]?.truncate(to: size) }

    mutating func sync(_ node: Node, succeeds: Bool = true) {
        files[node]?.sync(succeeds: succeeds)
    }

    mutating func syncFolder(_ path: String) {
        guard let node = node(path), let folder = folders[node] else { return }
        ordered = max(ordered, folder.changes.last?.order ?? 0)
        folders[node] = Folder(durable: folder.entries(after: folder.changes.count))
        for change in folder.changes where change.isMove && change.node == nil {
            keepAddition(of: change.order)
        }
    }

    /// A moved file is never lost: with its old entry's end the new entry is durable.
    private mutating func keepAddition(of move: Int) {
        for (node, folder) in folders {
            let index = folder.changes.firstIndex {
                $0.isMove && $0.order == move && $0.node != nil
            }
            guard let index else { continue }
            folders[node]?.durable = folder.entries(after: index + 1)
            folders[node]?.changes.removeFirst(index + 1)
            // What went before in that directory may have been moves away from it.
            for change in folder.changes[..<index] where change.isMove && change.node == nil {
                keepAddition(of: change.order)
            }
        }
    }

    /// Gives a name a meaning, or takes it away.
    mutating func enter(_ node: Node?, as path: String) {
        lastOrder += 1
        add(node, path, isMove: false)
    }

    mutating func rename(_ source: String, to target: String) {
        guard let node = node(source) else { preconditionFailure("nothing is at '\(source)'") }
        // Two names of one file both stay (rename(2)).
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
    /// The disk after a power cut: only what is there, all of it durable.
    init(files: [Node: [UInt8]], entries: [Node: [String: Node]], of old: DiskModel) {
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
    /// Cuts it, or fills it up with zeros.
    mutating func resize(to size: Int) {
        if count > size { removeLast(count - size) }
        if count < size { self += [UInt8](repeating: 0, count: size - count) }
    }

    /// Takes one sector of another file, as far as both have it.
    mutating func copySector(_ sector: Int, from source: [UInt8]) {
        let start = sector * DiskModel.sector
        let end = Swift.min(start + DiskModel.sector, Swift.min(count, source.count))
        guard start < end else { return }
        withUnsafeMutableBytes { all in
            let target = UnsafeMutableRawBufferPointer(rebasing: all[start..<end])
            source.withUnsafeBytes { target.copyMemory(from: .init(rebasing: $0[start..<end])) }
        }
    }

    /// Whether it begins with the same bytes; in one call, for there are many.
    func begins(with other: [UInt8]) -> Bool {
        guard other.count <= count else { return false }
        return other.isEmpty || memcmp(self, other, other.count) == 0
    }
}
