// A real directory, the model of its durable part, and the fault at call n.
//
// Each process has its own `Disk`; a crashed one makes no further call. After a power failure the directory is rebuilt
// from the model. Invariant: calls are numbered in the order in which processes make them.

import Foundation
import SpoolgatePosix
import SpoolgateUploadProtocol
import Synchronization

@testable import SpoolgateSpool

final class FaultyMachine: Sendable {
    /// The subject is relative to the root.
    struct Step: Sendable, Equatable, CustomStringConvertible {
        var call: Disk.Call
        var subject: String
        /// The state that was written to a slot.
        var state = ""

        var description: String { "\(call.rawValue) \(subject) \(state)" }
    }

    /// Selects syncs that only report success, by file or directory and the newest state of its upload.
    typealias Lie = @Sendable (_ subject: String, _ state: String) -> Bool

    private struct State {
        var model = DiskModel()
        /// The nodes by inode number.
        var nodes: [UInt: DiskModel.Node] = [:]
        var steps: [Step] = []
        var fault: (kind: Fault, number: Int)?
        var wasReached = false
        var isShort = false
        var isFull: Int32?
        var processes = 0
        var dead: Set<Int> = []
        /// By the nodes of their records.
        var records: [DiskModel.Node: String] = [:]
        /// The most attempts in a written state of each upload.
        var attempts: [String: Int] = [:]
        var states: [String: String] = [:]
        var lie: Lie?
        var clockError: Int64 = 0
    }

    let root: String
    private let state = Mutex(State())

    init(root: String) { self.root = root }

    // MARK: Processes

    func start() -> Int {
        state.withLock { state in
            state.processes += 1
            return state.processes
        }
    }

    func isDead(_ process: Int) -> Bool { state.withLock { $0.dead.contains(process) } }

    func kill(_ process: Int) { _ = state.withLock { $0.dead.insert(process) } }

    func disk(of process: Int) -> Disk {
        Disk { call, subject throws(SystemError) in
            try self.check(call, subject, process)
        } witness: { effect in
            self.state.withLock { self.note(effect, &$0) }
        }
    }

    // MARK: The clock

    var clock: SystemClock {
        SystemClock(wall: { [self] in WallTime(seconds: WallTime.now.seconds + clockError) })
    }

    var clockError: Int64 { state.withLock { $0.clockError } }

    func setClock(wrongBy seconds: Int64) { state.withLock { $0.clockError = seconds } }

    /// Sets a changed file's time as the kernel would.
    private func stamp(_ file: Int32, _ state: State) {
        guard state.clockError != 0 else { return }
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        now.tv_sec += Int(state.clockError)
        let times = [now, now]
        precondition(futimens(file, times) == 0, "the time of a file cannot be set")
    }

    // MARK: Faults

    /// Takes the current state as durable and counts calls from here on.
    func begin(_ fault: Fault?, at number: Int, on model: DiskModel? = nil) {
        state.withLock { state in
            if let model { state.model = model }
            state.fault = fault.map { ($0, number) }
            state.steps = []
            state.wasReached = false
            state.isShort = false
            state.isFull = nil
            state.clockError = 0
            (state.records, state.attempts, state.states) = ([:], [:], [:])
        }
    }

    /// No call fails, and there is room.
    func repair() {
        state.withLock { state in
            state.fault = nil
            state.isShort = false
            state.isFull = nil
            state.clockError = 0
        }
    }

    func setLie(_ lie: Lie?) { state.withLock { $0.lie = lie } }

    var wasReached: Bool { state.withLock { $0.wasReached } }
    var steps: [Step] { state.withLock { $0.steps } }
    var model: DiskModel { state.withLock { $0.model } }
    /// Attempts recorded as begun since `begin`.
    func attempts(of identity: String) -> Int {
        state.withLock { $0.attempts[identity, default: 0] }
    }

    private func check(
        _ call: Disk.Call,
        _ subject: String,
        _ process: Int
    ) throws(SystemError) -> Int {
        try state.withLock { state throws(SystemError) in
            func error(_ errno: Int32) -> SystemError {
                SystemError(call: call.rawValue, subject: subject, errno: errno)
            }
            guard !state.dead.contains(process) else { throw error(EIO) }
            state.steps.append(Step(call: call, subject: relative(subject)))
            if state.isShort {
                state.isShort = false
                throw error(ENOSPC)
            }
            if let errno = state.isFull, Fault.needsRoom(call) { throw error(errno) }
            guard let fault = state.fault, fault.number == state.steps.count else { return .max }
            state.wasReached = true
            switch fault.kind {
            case .fails(let errno):
                if call == .sync { failSync(subject, &state) }
                throw error(errno)
            case .failsThenCut:
                if call == .sync { failSync(subject, &state) }
                throw error(EIO)
            case .stays(let errno):
                state.isFull = errno
                if call == .sync { failSync(subject, &state) }
                throw error(errno)
            case .jumps(let seconds):
                state.clockError = seconds
                return .max
            case .short:
                state.isShort = true
                return 3
            case .death, .deathThenCut:
                state.dead.insert(process)
                throw error(EIO)
            case .cut:
                state.dead.formUnion(1...state.processes)
                throw error(EIO)
            }
        }
    }

    private func failSync(_ subject: String, _ state: inout State) {
        if let node = state.model.node(relative(subject)) {
            state.model.sync(node, succeeds: false)
        }
    }

    // MARK: Effects

    private func relative(_ path: String) -> String {
        // UTF-8, because it is called for every call of a sweep.
        guard path.utf8.starts(with: root.utf8) else { return path }
        let below = Substring(path.utf8.dropFirst(root.utf8.count).drop { $0 == UInt8(ascii: "/") })
        guard below.hasSuffix("/..") else { return String(below) }
        return below.split(separator: "/").dropLast(2).joined(separator: "/")
    }

    private func note(_ effect: Disk.Effect, _ state: inout State) {
        switch effect {
        case .created(let file, let path):
            let node = state.model.make(isFolder: false)
            state.nodes[Self.number(file)] = node
            stamp(file, state)
            guard let path = path.map(relative) else { return }
            state.model.enter(node, as: path)
            let parts = path.split(separator: "/")
            if parts.count == 4, parts[1] == "uploads" { state.records[node] = String(parts[3]) }
        case .createdEmpty(let path):
            let path = relative(path)
            guard state.model.node(path) == nil else { return }
            state.model.enter(state.model.make(isFolder: false), as: path)
        case .madeDirectory(let path):
            let path = relative(path)
            guard state.model.node(path) == nil else { return }
            let node = state.model.make(isFolder: true)
            state.model.enter(node, as: path)
        case .wrote(let file, let position, let count):
            var bytes = [UInt8](repeating: 0, count: count)
            // `file` may be write-only.
            let readable = open("/proc/self/fd/\(file)", O_RDONLY | O_CLOEXEC)
            let read = pread(readable, &bytes, count, off_t(position))
            close(readable)
            precondition(read == count, "written bytes cannot be read")
            let node = with(file, &state) { $0.write(bytes, to: $1, at: Int(position)) }
            noteState(bytes, node, &state)
            stamp(file, state)
        case .truncated(let file, let size):
            with(file, &state) { $0.truncate($1, to: Int(size)) }
            stamp(file, state)
        case .synced(let file): if !isLie(state) { with(file, &state) { $0.sync($1) } }
        case .syncedDirectory(let path):
            if !isLie(state) { state.model.syncFolder(relative(path)) }
        case .syncedFileSystem: if !isLie(state) { state.model.syncAll() }
        case .linked(let file, let path):
            with(file, &state) { $0.enter($1, as: relative(path)) }
        case .renamed(let source, let target):
            state.model.rename(relative(source), to: relative(target))
        case .unlinked(let path): state.model.enter(nil, as: relative(path))
        }
    }

    private func isLie(_ state: State) -> Bool {
        guard let lie = state.lie, let subject = state.steps.last?.subject else { return false }
        let name = subject.split(separator: "/").last.map { String($0) } ?? ""
        let isData = name.hasSuffix(FileName.dataSuffix)
        let identity = isData ? String(name.dropLast(FileName.dataSuffix.count)) : name
        return lie(subject, state.states[identity] ?? "")
    }

    private func noteState(_ bytes: [UInt8], _ node: DiskModel.Node, _ state: inout State) {
        guard let identity = state.records[node], let id = UploadID(identity),
            let line = Checksum.verified(bytes.prefix(RecordSlots.size), for: id)
        else { return }
        let text = String(decoding: line, as: UTF8.self)
        if !state.steps.isEmpty { state.steps[state.steps.count - 1].state = text }
        state.states[identity] = text
        let words = text.split(separator: " ")
        guard words.contains("state=active"),
            let word = words.first(where: { $0.hasPrefix("attempts=") }),
            let count = Int(word.dropFirst("attempts=".count))
        else { return }
        state.attempts[identity] = max(count, state.attempts[identity, default: 0])
    }

    @discardableResult
    private func with(
        _ file: Int32,
        _ state: inout State,
        _ body: (inout DiskModel, DiskModel.Node) -> Void
    ) -> DiskModel.Node {
        guard let node = state.nodes[Self.number(file)] else {
            preconditionFailure("a change of an unknown file")
        }
        body(&state.model, node)
        return node
    }

    private static func number(_ file: Int32) -> UInt {
        var raw = stat()
        precondition(fstat(file, &raw) == 0, "the file is not open")
        return UInt(raw.st_ino)
    }

    // MARK: After a power failure

    /// Cuts the power.
    ///
    /// The files of `links`, outside the root, were synced by others; those that are hard links to the machine's own
    /// stay as they are.
    func rebuild(after cut: PowerCut, withLinks links: [String]) throws {
        let shared = state.withLock { state in
            links.compactMap { link -> (String, DiskModel.Node)? in
                var raw = stat()
                guard lstat(link, &raw) == 0, let node = state.nodes[UInt(raw.st_ino)],
                    raw.st_nlink > 1
                else { return nil }
                state.model.sync(node)
                return (link, node)
            }
        }
        try rebuild(after: cut)
        let paths = model.paths
        for (link, node) in shared {
            guard let path = paths.first(where: { $0.value == node })?.key else { continue }
            guard unlink(link) == 0, Glibc.link("\(root)/\(path)", link) == 0 else {
                throw SystemError("link", on: link)
            }
        }
    }

    /// Also ends all processes.
    func rebuild(after cut: PowerCut) throws {
        try state.withLock { state in
            state.dead.formUnion(1...max(1, state.processes))
            let old = state.model
            let new = cut.after(old)
            let was = old.tree(entries: old.folders.mapValues { $0.entries(after: .max) })
            let tree = new.tree(entries: new.folders.mapValues { $0.durable })
            for path in was.files.keys where unlink("\(root)/\(path)") != 0 {
                throw SystemError("unlink", on: path)
            }
            for path in was.folders.subtracting(tree.folders).sorted().reversed() {
                guard rmdir("\(root)/\(path)") == 0 else { throw SystemError("rmdir", on: path) }
            }
            for path in tree.folders.subtracting(was.folders).sorted() {
                guard mkdir("\(root)/\(path)", 0o700) == 0 else {
                    throw SystemError("mkdir", on: path)
                }
            }
            state.nodes = [:]
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
                state.nodes[Self.number(file)] = node
                close(file)
            }
            state.model = new
        }
    }
}
