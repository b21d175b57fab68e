// The effect of a power failure on data that was not durable: one choice for content, one for directory entries.
//
// All assumptions about a file system:
// - data synced by fdatasync, and entries by fsync of a directory, stay;
// - a sector of 512 bytes is old or new, never mixed; beyond the durable size it may be zeros;
// - a block of 4096 bytes that was written to may be lost (garbage or zeros), independently of others; one that was
//   only extended keeps its durable bytes;
// - the size is any that the file had since its last sync;
// - a directory keeps a prefix of its changes;
// - a moved file is never lost: its old entry is removed only if the new one exists. Both may exist.
//
// `Order.journal` assumes more, as in ext4 and XFS: all directories together keep a prefix of all changes, a move is
// both entries or none, and fsync of one directory keeps every earlier change of any other.
// `Order.log` is btrfs: a commit keeps a prefix of all changes. Between commits, fsync of a directory keeps only that
// directory's changes.
// `Order.apart` assumes no relation between directories.

package struct PowerCut: Sendable, CustomStringConvertible {
    /// The bytes of each file that were not durable.
    package enum Content: Sendable, CaseIterable {
        case lost
        case kept
        /// New size, blocks of zeros.
        case zeros
        /// New size, blocks of garbage.
        case garbage
        /// Some blocks are lost; in the others, each sector is new, old or zeros.
        ///
        /// The size is one of `sizes`.
        case torn

        /// Whether a part can survive without the rest.
        package var mayTear: Bool { self == .garbage || self == .torn }
    }

    /// The changes of directories that were not durable.
    package enum Names: Sendable, CaseIterable {
        case undone
        case kept
        /// The changes before a directory's first removal survive.
        case additions
        /// The changes up to a directory's last removal survive, and moves as a whole.
        case removals
        case some
    }

    package enum Order: Sendable, CaseIterable { case journal, log, apart }

    package var content: Content
    package var names: Names
    package var order: Order
    package var seed: UInt64

    package init(content: Content, names: Names, order: Order, seed: UInt64 = 1) {
        (self.content, self.names, self.order, self.seed) = (content, names, order, seed)
    }

    package var description: String { "cut(\(content),\(names),\(order),\(seed))" }

    package func after(_ model: DiskModel) -> DiskModel {
        var random = SplitMix(seed: seed)
        let entries: [DiskModel.Node: [String: DiskModel.Node]]
        switch order {
        case .journal, .log:
            let end = lastOrder(model, &random)
            entries = model.folders.mapValues { folder in
                folder.entries(after: folder.changes.count { $0.order <= end })
            }
        case .apart: entries = apart(model, &random)
        }
        var files: [DiskModel.Node: [UInt8]] = [:]
        // A fixed order, so that a seed repeats its result.
        for (node, file) in model.files.sorted(by: { $0.key < $1.key }) {
            files[node] = bytes(file, &random)
        }
        return DiskModel(files: files, entries: entries, of: model)
    }

    // MARK: Content

    private func bytes(_ file: DiskModel.File, _ random: inout SplitMix) -> [UInt8] {
        let flushed = file.flushed
        switch content {
        case .lost: return file.durable
        case .kept: return flushed
        case .zeros, .garbage:
            var bytes = Array(file.durable.prefix(file.leastSize))
            bytes.resize(to: flushed.count)
            for block in file.losable { lose(block, of: &bytes, content == .zeros, &random) }
            return bytes
        case .torn:
            let isCut = random.next(2) == 0
            var bytes = isCut ? Array(file.durable.prefix(file.leastSize)) : file.durable
            bytes.resize(to: random.one(from: file.sizes))
            // A device writes pages of eight sectors, and a page of the cache can be split.
            let keeps = random.next(9)
            for sector in file.dirty.sorted() where random.next(8) < keeps {
                bytes.copySector(sector, from: flushed)
            }
            let loses = random.next(5)
            for block in file.losable where random.next(8) < loses {
                lose(block, of: &bytes, random.next(2) == 0, &random)
            }
            return bytes
        }
    }

    private func lose(
        _ block: Range<Int>,
        of bytes: inout [UInt8],
        _ isZeros: Bool,
        _ random: inout SplitMix
    ) {
        for index in block.clamped(to: 0..<bytes.count) {
            bytes[index] = isZeros ? 0 : UInt8(truncatingIfNeeded: random.next())
        }
    }

    // MARK: Names

    private func lastOrder(_ model: DiskModel, _ random: inout SplitMix) -> Int {
        let orders = Set(model.folders.values.flatMap { $0.changes.map(\.order) })
        // With a journal, the last sync included all earlier changes.
        let least = order == .journal ? model.ordered : 0
        let later = orders.filter { $0 > least }.sorted()
        switch names {
        case .undone: return least
        case .kept, .additions, .removals: return .max
        case .some: return random.one(from: [least] + later)
        }
    }

    private func apart(
        _ model: DiskModel,
        _ random: inout SplitMix
    ) -> [DiskModel.Node: [String: DiskModel.Node]] {
        var kept: [DiskModel.Node: Int] = [:]
        for (node, folder) in model.folders.sorted(by: { $0.key < $1.key }) {
            let changes = folder.changes
            kept[node] =
                switch names {
                case .undone: 0
                case .kept: changes.count
                case .additions: changes.prefix { $0.node != nil }.count
                case .removals: (changes.lastIndex { $0.node == nil } ?? -1) + 1
                case .some: changes.isEmpty ? 0 : random.next(changes.count + 1)
                }
        }
        // No move's removal survives without its addition.
        var isSettled = false
        while !isSettled {
            isSettled = true
            var moved: Set<Int> = []
            for (node, folder) in model.folders {
                for change in folder.changes.prefix(kept[node] ?? 0) where change.node == nil {
                    if change.isMove { moved.insert(change.order) }
                }
            }
            for (node, folder) in model.folders {
                let needed = folder.changes.lastIndex { change in
                    change.node != nil && change.isMove && moved.contains(change.order)
                }
                if let needed, needed >= kept[node] ?? 0 {
                    kept[node] = needed + 1
                    isSettled = false
                }
            }
        }
        return model.folders.reduce(into: [:]) { entries, folder in
            entries[folder.key] = folder.value.entries(after: kept[folder.key] ?? 0)
        }
    }
}

extension PowerCut {
    /// Tried at every call.
    package static let corners: [PowerCut] = [
        PowerCut(content: .lost, names: .undone, order: .journal),
        PowerCut(content: .zeros, names: .kept, order: .journal),
        PowerCut(content: .garbage, names: .kept, order: .journal),
        PowerCut(content: .kept, names: .undone, order: .log),
        PowerCut(content: .kept, names: .undone, order: .apart),
        PowerCut(content: .lost, names: .kept, order: .apart),
        PowerCut(content: .kept, names: .additions, order: .apart),
        PowerCut(content: .zeros, names: .additions, order: .apart),
        PowerCut(content: .lost, names: .removals, order: .apart),
    ]

    package static func random(_ seed: UInt64) -> PowerCut {
        var random = SplitMix(seed: seed)
        let content = random.one(from: [Content.torn, .torn, .torn] + Content.allCases)
        return PowerCut(
            content: content,
            names: random.one(from: [Names.some, .some, .some] + Names.allCases),
            order: random.one(from: Order.allCases),
            seed: seed
        )
    }
}
