// A real directory, the model of its durable part, and the fault at call n.
//
// Each process has its own `Disk`; a crashed one makes no further call. After a power failure the directory is rebuilt
// from the model. Invariant: calls are numbered in the order in which processes make them.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
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
        var files: ModeledDirectory
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
    private let state: Mutex<State>

    init(root: String) {
        self.root = root
        state = Mutex(State(files: ModeledDirectory(root: root)))
    }

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
        } observer: { effect in
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
            if let model { state.files.model = model }
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
    var model: DiskModel { state.withLock { $0.files.model } }
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
            state.steps.append(Step(call: call, subject: state.files.relative(subject)))
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
        if let node = state.files.model.node(state.files.relative(subject)) {
            state.files.model.sync(node, succeeds: false)
        }
    }

    // MARK: Effects

    private func note(_ effect: Disk.Effect, _ state: inout State) {
        switch effect {
        case .synced, .syncedDirectory, .syncedFileSystem:
            if !isLie(state) { state.files.note(effect) }
        case .created(let file, let path):
            state.files.note(effect)
            stamp(file, state)
            let parts = path.map(state.files.relative)?.split(separator: "/") ?? []
            if parts.count == 4, parts[1] == "uploads" {
                state.records[known(file, state)] = String(parts[3])
            }
        case .wrote(let file, _, _):
            let bytes = state.files.note(effect)
            noteState(bytes, known(file, state), &state)
            stamp(file, state)
        case .truncated(let file, _):
            state.files.note(effect)
            stamp(file, state)
        case .createdEmpty, .madeDirectory, .linked, .renamed, .unlinked: state.files.note(effect)
        }
    }

    private func known(_ file: Int32, _ state: State) -> DiskModel.Node {
        guard let node = state.files.node(file) else {
            preconditionFailure("a change of an unknown file")
        }
        return node
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

    // MARK: After a power failure

    /// Cuts the power.
    ///
    /// The files of `links`, outside the root, were synced by others; those that are hard links to the machine's own
    /// stay as they are.
    func rebuild(after cut: PowerCut, withLinks links: [String]) throws {
        let shared = state.withLock { state in
            links.compactMap { link -> (String, DiskModel.Node)? in
                var raw = stat()
                guard lstat(link, &raw) == 0, let node = state.files.node(inode: UInt(raw.st_ino)),
                    raw.st_nlink > 1
                else { return nil }
                state.files.model.sync(node)
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
            try state.files.rebuild(after: cut)
        }
    }
}
