// What can happen at one call on the disk.

import Foundation
import SpoolgatePosix

/// How much is tried.
enum Effort: Sendable {
    /// A sample that is the same every time. Every call fails, dies and finds the disk full; of the
    /// other kinds each call has its turn. `turn`, the number of the scenario, moves the turns, so that
    /// over the scenarios every kind of call meets every kind of fault.
    case sample(turn: Int)
    /// All of it, and these power cuts beside the corners.
    case whole(seeds: [UInt64])

    /// The faults that are tried at call `number` of those that could be: all, or the one whose turn it
    /// is at every `interval`th call.
    func choice(of faults: [Fault], at number: Int, every interval: Int = 1) -> [Fault] {
        guard case .sample(let turn) = self else { return faults }
        let (round, rest) = (number + turn).quotientAndRemainder(dividingBy: interval)
        return rest == 0 ? [faults[round % faults.count]] : []
    }
}

/// What happens at call n.
enum Fault: Sendable, CustomStringConvertible {
    /// It fails, the next one works.
    case fails(Int32)
    /// It and every later one that needs room fails, until somebody makes room.
    case stays(Int32)
    /// A write writes some bytes, then the disk is full.
    case short
    /// The process that makes it dies first.
    case death
    /// The power goes first.
    case cut(PowerCut)
    /// The wall clock is set by so many seconds, the call works; later the clock is right again.
    case jumps(Int64)
    /// It fails; the client asks for its offset; then the power goes.
    case failsThenCut(PowerCut)
    /// The process that makes it dies first; the client asks the next one for its offset; then the power goes.
    case deathThenCut(PowerCut)

    var description: String {
        switch self {
        case .fails(let errno): "fails(\(Self.name(errno)))"
        case .stays(let errno): "stays(\(Self.name(errno)))"
        case .short: "short"
        case .death: "death"
        case .cut(let cut): "\(cut)"
        case .jumps(let seconds): "jumps(\(seconds))"
        case .failsThenCut(let cut): "failsThen-\(cut)"
        case .deathThenCut(let cut): "deathThen-\(cut)"
        }
    }

    /// Whether calls fail and the process lives on.
    var isError: Bool {
        switch self {
        case .fails, .stays, .short, .failsThenCut: true
        case .death, .deathThenCut, .cut, .jumps: false
        }
    }

    /// The cut that comes after the client has asked for its offset; nil: none does.
    var laterCut: PowerCut? {
        switch self {
        case .failsThenCut(let cut), .deathThenCut(let cut): cut
        case .fails, .stays, .short, .death, .cut, .jumps: nil
        }
    }

    /// What is tried at call `number`, which is of this kind.
    static func all(for call: Disk.Call, _ number: Int, _ effort: Effort) -> [Fault] {
        // There are so few of these that not everything would have its turn.
        if case .sample(let turn) = effort, [.truncate, .makeDirectory, .copy].contains(call) {
            return all(for: call, number, .whole(seeds: [UInt64(turn)]))
        }
        var faults: [Fault] = [.fails(EIO), .death]
        if needsRoom(call) {
            var full: [Fault] = [.stays(ENOSPC), .fails(ENOSPC), .stays(EDQUOT), .fails(EDQUOT)]
            // The limit of file sizes is met by content alone.
            if call == .write || call == .copy { full += [.stays(EFBIG), .fails(EFBIG)] }
            faults += effort.choice(of: full, at: number)
        }
        switch call {
        case .create: faults.append(.fails(EMFILE))
        case .write, .copy: faults.append(.short)
        case .createEmpty, .makeDirectory, .truncate, .sync, .syncDirectory, .link, .rename,
            .unlink,
            .touch:
            break
        }
        // The directories apart: a daemon that starts syncs one, and a journal takes along the others.
        let later =
            [PowerCut(content: .lost, names: .undone, order: .apart)] + PowerCut.corners[1...2]
        if call == .sync || call == .truncate {
            faults += effort.choice(of: later.map { .failsThenCut($0) }, at: number)
        }
        faults += effort.choice(of: later.map { .deathThenCut($0) }, at: number, every: 2)
        faults += effort.choice(of: jumps.map { .jumps($0) }, at: number, every: 3)
        return faults + cuts(number, effort)
    }

    /// How far the clock is set: beyond the time that anything is kept, forward and back.
    private static let jumps: [Int64] = [
        10 * 365 * 86_400, -10 * 365 * 86_400, 9 * 86_400, -9 * 86_400, 2 * 86_400, -2 * 86_400,
    ]

    /// The power cuts that are tried at call `number`, or behind the last.
    static func cuts(_ number: Int, _ effort: Effort) -> [Fault] {
        let corners = PowerCut.corners.map { Fault.cut($0) }
        switch effort {
        case .sample(let turn):
            // A seed that no other call of the scenario has, and few of another one.
            let random = Fault.cut(.random(UInt64(turn * 97 + number)))
            return effort.choice(of: corners, at: number)
                + effort.choice(of: [random], at: number, every: 2)
        case .whole(let seeds): return corners + seeds.map { .cut(.random($0)) }
        }
    }

    /// Whether a call of this kind can find a disk full.
    static func needsRoom(_ call: Disk.Call) -> Bool {
        switch call {
        case .create, .createEmpty, .makeDirectory, .write, .copy, .link, .rename, .sync: true
        case .truncate, .syncDirectory, .unlink, .touch: false
        }
    }

    private static func name(_ errno: Int32) -> String {
        switch errno {
        case EIO: "EIO"
        case ENOSPC: "ENOSPC"
        case EDQUOT: "EDQUOT"
        case EFBIG: "EFBIG"
        case EMFILE: "EMFILE"
        default: "\(errno)"
        }
    }
}
