// A disk on which call n fails, or is the last one ever made, or is followed by a power cut.
//
// The power cut is the worst that a journalling file system may do: what was not synced has other
// bytes, and either every unsynced change of a directory is undone or none is. It does not undo some
// and keep others, and it does not reorder them.

import Foundation
import Posix
import Synchronization
import Testing
import UploadProtocol

@testable import Spool

/// Fails calls of a `Disk` by number, and knows what would survive a power cut.
final class FaultyDisk: Sendable {
    /// What happens at call n.
    enum Fault: Sendable, CaseIterable, CustomTestStringConvertible {
        /// The call fails, the next one works.
        case error
        /// The disk is full for this call.
        case full
        /// A write writes half, then the disk is full.
        case short
        /// The process dies: no further call is made.
        case death
        /// The power goes, and every directory is as it was last synced.
        case cutEarly
        /// The power goes, and every directory is as it was last changed.
        case cutLate

        var testDescription: String { "\(self)" }
        var isPowerCut: Bool { self == .cutEarly || self == .cutLate }
        var endsProcess: Bool { self == .death || isPowerCut }
    }

    private struct State {
        var count = 0
        var isEnabled = false
        var isDead = false
        var isShort = false
        var pending: (Disk.Call, String)?
        var syncedContent: [String: Data] = [:]
        var syncedTree: Set<String> = []
        var calls: [Disk.Call] = []
    }

    private let state = Mutex(State())
    private let fault: Fault
    private let number: Int
    private let path: String

    init(_ fault: Fault, at number: Int, in spool: TemporarySpool) {
        self.fault = fault
        self.number = number
        path = spool.path
    }

    /// The disk to give to a spool.
    var disk: Disk { Disk { call, subject throws(SystemError) in try self.check(call, subject) } }

    /// Begins counting; what is on the disk now is durable.
    func begin() {
        state.withLock { state in
            state.isEnabled = true
            state.syncedTree = Self.tree(path)
        }
    }

    /// Whether call n was reached.
    var wasReached: Bool { state.withLock { $0.count >= number } }

    /// The calls made since `begin`.
    var calls: [Disk.Call] { state.withLock { $0.calls } }

    private func check(_ call: Disk.Call, _ subject: String) throws(SystemError) -> Int {
        try state.withLock { state throws(SystemError) in
            guard state.isEnabled else { return Int.max }
            finishPending(&state)
            if state.isDead { throw SystemError(call: "dead", subject: subject, errno: EIO) }
            if state.isShort {
                state.isShort = false
                throw SystemError(call: call.rawValue, subject: subject, errno: ENOSPC)
            }
            state.count += 1
            state.calls.append(call)
            if state.count == number {
                switch fault {
                case .error: throw SystemError(call: call.rawValue, subject: subject, errno: EIO)
                case .full: throw SystemError(call: call.rawValue, subject: subject, errno: ENOSPC)
                case .short where call == .write:
                    state.isShort = true
                    return 3
                case .short:
                    throw SystemError(call: call.rawValue, subject: subject, errno: ENOSPC)
                case .death, .cutEarly, .cutLate:
                    state.isDead = true
                    throw SystemError(call: "dead", subject: subject, errno: EIO)
                }
            }
            state.pending = (call, subject)
            return Int.max
        }
    }

    /// Notes what the call before this one made durable.
    private func finishPending(_ state: inout State) {
        guard let (call, subject) = state.pending else { return }
        state.pending = nil
        switch call {
        case .sync:
            let name = Self.key(subject)
            // A record is synced by a descriptor; it may have moved since that was opened.
            for file in Self.tree(path) where Self.key(file) == name {
                state.syncedContent[name] = FileManager.default.contents(atPath: "\(path)/\(file)")
            }
        case .syncDirectory:
            state.syncedTree = Self.tree(path)
        case .create, .makeDirectory, .write, .truncate, .link, .rename, .unlink: break
        }
    }

    /// Leaves in the directory what a power cut would.
    func cutPower(_ spool: TemporarySpool) throws {
        try state.withLock { state in
            finishPending(&state)
            state.isDead = true
            let present = Self.tree(path)
            let tree = fault == .cutEarly ? state.syncedTree : present
            var sizes: [String: Int] = [:]
            for file in present {
                sizes[Self.key(file)] =
                    FileManager.default.contents(atPath: "\(path)/\(file)")?.count
                try FileManager.default.removeItem(atPath: "\(path)/\(file)")
            }
            for file in tree {
                let key = Self.key(file)
                var content = state.syncedContent[key] ?? Data()
                if fault == .cutLate, key.hasPrefix("data"), let size = sizes[key],
                    size > content.count
                {
                    content += Data(repeating: UInt8(ascii: "#"), count: size - content.count)
                }
                try content.write(to: URL(filePath: "\(path)/\(file)"))
            }
        }
        try spool.cutPower()
    }

    /// `data` or `record`, and the identity: an upload has one file of each, wherever it is.
    private static func key(_ file: String) -> String {
        let kind = file.contains("data/") ? "data" : "record"
        return "\(kind) \(file.split(separator: "/").last ?? "")"
    }

    /// Every data file and record of the first subdirectories, relative to the spool.
    private static func tree(_ path: String) -> Set<String> {
        var tree: Set<String> = []
        for directory in Queue.allCases.map(\.rawValue) + ["data"] {
            let names = try? FileManager.default.contentsOfDirectory(
                atPath: "\(path)/\(directory)/\(FaultyDisk.shard)"
            )
            for name in names ?? [] { tree.insert("\(directory)/\(FaultyDisk.shard)/\(name)") }
        }
        return tree
    }

    /// The only subdirectory it looks at; identities for its tests must be there.
    static let shard = "0"

    /// An identity in that subdirectory.
    static func identity() -> UploadID {
        UploadID(high: .random(in: 0...(.max)) >> 5, low: .random(in: 0...(.max)))
    }
}
