// Tests of the model itself.

import SpoolgateTestSupport
import Testing

@Suite("The model of a disk")
struct DiskModelTests {
    private static let cuts = PowerCut.corners + (1...300).map { PowerCut.random($0) }

    private let old = [UInt8](repeating: 1, count: 1300)
    private let new = [UInt8](repeating: 2, count: 2000)

    /// The durable file `a/file` contains `old`.
    private func model() -> (DiskModel, DiskModel.Node) {
        var model = DiskModel()
        for name in ["a", "b"] {
            let folder = model.make(isFolder: true)
            model.enter(folder, as: name)
        }
        model.syncFolder("")
        let node = model.make(isFolder: false)
        model.enter(node, as: "a/file")
        model.write(old, to: node, at: 0)
        model.sync(node)
        model.syncFolder("a")
        return (model, node)
    }

    private func content(_ model: DiskModel, _ path: String = "a/file") -> [UInt8]? {
        model.node(path).flatMap { model.files[$0]?.current }
    }

    @Test("synced data stays", arguments: cuts)
    func durable(cut: PowerCut) {
        var (model, node) = model()
        model.write(new, to: node, at: old.count)
        let after = cut.after(model)
        #expect(content(after)?.starts(with: old) == true)
        #expect((content(after)?.count ?? 0) <= old.count + new.count)
    }

    @Test("unsynced data vanishes, arrives, arrives partly, or is zeros")
    func volatile() {
        var (model, node) = model()
        model.write(new, to: node, at: old.count)
        let results = Set(Self.cuts.compactMap { content($0.after(model)) })
        let zeros = [UInt8](repeating: 0, count: new.count)
        #expect(results.isSuperset(of: [old, old + new, old + zeros]))
        let partly = results.filter { bytes in
            bytes.dropFirst(old.count).contains(0) && bytes.dropFirst(old.count).contains(2)
        }
        #expect(!partly.isEmpty)
        #expect(partly.allSatisfy { $0.count == old.count + new.count })
    }

    @Test(
        "an overwritten sector is old or new, never both, or lost with its block only"
    )
    func sectors() {
        var (model, node) = model()
        let size = DiskModel.block
        model.write([UInt8](repeating: 1, count: 3 * size), to: node, at: 0)
        model.sync(node)
        model.write([UInt8](repeating: 2, count: 512), to: node, at: size + 512)
        let results = Set(Self.cuts.compactMap { content($0.after(model)) })
        #expect(results.allSatisfy { $0.count == 3 * size })
        let outside = results.map { Set($0[..<size] + $0[(2 * size)...]) }
        #expect(outside.allSatisfy { $0 == [1] })
        // The block is old, new or zeros; otherwise garbage.
        let (kept, lost) = (
            results.filter { Set($0[size..<size + 512]) == [1] },
            results.filter { Set($0[size..<size + 512]) != [1] }
        )
        #expect(Set(kept.map { Set($0[(size + 512)..<size + 1024]) }) == [[1], [2]])
        #expect(lost.contains { Set($0[size..<2 * size]) == [0] })
        #expect(lost.contains { Set($0[size..<2 * size]).count > 100 })
    }

    @Test("blocks are lost independently, also after a failed sync")
    func blocks() {
        var (model, node) = model()
        let size = DiskModel.block
        model.write([UInt8](repeating: 1, count: 2 * size), to: node, at: 0)
        model.sync(node)
        for isSynced in [false, true] {
            model.write([2], to: node, at: 0)
            if isSynced { model.sync(node, succeeds: false) }
            model.write([2], to: node, at: size)
            let found = Set(
                Self.cuts.compactMap { content($0.after(model)) }
                    .map {
                        [$0[1...].prefix(size - 1), $0.suffix(size - 1)].map { Set($0) == [1] }
                    }
            )
            #expect(found == [[true, true], [true, false], [false, true], [false, false]])
        }
        // Blocks written again are certain again.
        for position in [0, size] { model.write([3], to: node, at: position) }
        model.sync(node)
        #expect(Set(Self.cuts.map { content($0.after(model)) }).count == 1)
    }

    @Test("truncated and rewritten: old, new or zeros after the cut")
    func cutBack() {
        var (model, node) = model()
        model.truncate(node, to: 100)
        model.write(new, to: node, at: 100)
        let results = Set(Self.cuts.compactMap { content($0.after(model)) })
        #expect(results.isSuperset(of: [old, Array(old[..<100]) + new]))
        #expect(results.allSatisfy { $0.starts(with: old[..<100]) })
        #expect(results.contains { $0.dropFirst(100).prefix(400).contains(0) })
        model.sync(node)
        #expect(Self.cuts.allSatisfy { content($0.after(model)) == Array(old[..<100]) + new })
    }

    @Test("the next sync does not repair a failed one")
    func failedSync() {
        var (model, node) = model()
        model.write(new, to: node, at: old.count)
        model.sync(node, succeeds: false)
        model.write([3], to: node, at: old.count + new.count)
        model.sync(node)
        #expect(content(model) == old + new + [3])
        let after = Self.cuts.map { content($0.after(model)) }
        // Except for the sector that was written again.
        let lost = old.count..<(old.count + new.count) / DiskModel.sector * DiskModel.sector
        #expect(after.allSatisfy { $0?.starts(with: old) == true })
        #expect(after.allSatisfy { $0?.prefix(lost.upperBound).contains(2) == false })
    }

    @Test("a name without a sync of its directory may exist or not", arguments: [false, true])
    func names(isSynced: Bool) {
        var (model, _) = model()
        let node = model.make(isFolder: false)
        model.enter(node, as: "b/other")
        model.sync(node)
        if isSynced { model.syncFolder("b") }
        let found = Set(Self.cuts.map { $0.after(model).node("b/other") != nil })
        #expect(found == (isSynced ? [true] : [false, true]))
    }

    @Test(
        "a moved file is at one place or at both, never at none, and with a journal never at both"
    )
    func moves() {
        var (model, node) = model()
        model.rename("a/file", to: "b/file")
        var found: [PowerCut.Order: Set<[Bool]>] = [:]
        for cut in Self.cuts {
            let after = cut.after(model)
            let places = ["a/file", "b/file"].map { after.node($0) == node }
            found[cut.order, default: []].insert(places)
        }
        for order in [PowerCut.Order.journal, .log] {
            #expect(found[order] == [[true, false], [false, true]])
        }
        #expect(found[.apart] == [[true, false], [true, true], [false, true]])
        model.syncFolder("b")
        model.syncFolder("a")
        #expect(Self.cuts.allSatisfy { $0.after(model).node("a/file") == nil })
    }

    @Test("the removal of an old entry is not durable before the new entry")
    func movedAway() {
        var (model, node) = model()
        model.rename("a/file", to: "b/file")
        model.syncFolder("a")
        #expect(Self.cuts.allSatisfy { $0.after(model).node("b/file") == node })
    }

    @Test("with a journal, a sync includes earlier changes")
    func journal() {
        var (model, _) = model()
        let node = model.make(isFolder: false)
        model.enter(nil, as: "a/file")
        model.enter(node, as: "b/other")
        model.syncFolder("b")
        let found = Dictionary(grouping: Self.cuts, by: \.order).mapValues { cuts in
            Set(cuts.map { $0.after(model).node("a/file") == nil })
        }
        #expect(found == [.journal: [true], .log: [false, true], .apart: [false, true]])
    }

    @Test("with a log, unsynced changes are lost in order, across all directories")
    func log() {
        var (model, _) = model()
        let nodes = (0..<3).map { _ in model.make(isFolder: false) }
        model.enter(nodes[0], as: "a/first")
        model.enter(nodes[1], as: "b/second")
        model.enter(nodes[2], as: "a/third")
        let paths = ["a/first", "b/second", "a/third"]
        func found() -> Set<[Bool]> {
            Set(
                Self.cuts.filter { $0.order == .log }.map { cut in
                    let after = cut.after(model)
                    return paths.map { after.node($0) != nil }
                }
            )
        }
        #expect(
            found() == [
                [false, false, false], [true, false, false], [true, true, false],
                [true, true, true],
            ]
        )
        model.syncFolder("a")
        #expect(found() == [[true, false, true], [true, true, true]])
    }
}
