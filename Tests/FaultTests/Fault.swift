// The faults at one call on the disk.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport

enum Effort: Sendable {
    /// A fixed sample: at every call an error, a crash and a full disk, and the other faults in turn.
    ///
    /// `turn`, the scenario's number, shifts the turns, so that over all scenarios every kind of call meets every kind
    /// of fault.
    case sample(turn: Int)
    /// Every fault, with these random power failures.
    case whole(seeds: [UInt64])

    /// All faults, or one at every `interval`th call.
    func choice(of faults: [Fault], at number: Int, every interval: Int = 1) -> [Fault] {
        guard case .sample(let turn) = self else { return faults }
        let (round, rest) = (number + turn).quotientAndRemainder(dividingBy: interval)
        return rest == 0 ? [faults[round % faults.count]] : []
    }
}

enum Fault: Sendable, CustomStringConvertible {
    case fails(Int32)
    /// Every later call that needs room fails too.
    case stays(Int32)
    /// A write writes some bytes, then the disk is full.
    case short
    case death
    case cut(PowerCut)
    /// The call works; the wall clock is wrong by these seconds.
    case jumps(Int64)
    /// The call fails, the client requests its offset, then the power fails.
    case failsThenCut(PowerCut)
    /// The same after a crash; the next process responds.
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

    /// Whether calls fail in a process that continues.
    var isError: Bool {
        switch self {
        case .fails, .stays, .short, .failsThenCut: true
        case .death, .deathThenCut, .cut, .jumps: false
        }
    }

    var laterCut: PowerCut? {
        switch self {
        case .failsThenCut(let cut), .deathThenCut(let cut): cut
        case .fails, .stays, .short, .death, .cut, .jumps: nil
        }
    }

    static func all(for call: Disk.Call, _ number: Int, _ effort: Effort) -> [Fault] {
        // These calls are too few for each fault to have its turn.
        let rare: [Disk.Call] = [.truncate, .makeDirectory, .copy, .syncFileSystem]
        if case .sample(let turn) = effort, rare.contains(call) {
            return all(for: call, number, .whole(seeds: [UInt64(turn)]))
        }
        // The first two are tried in every run.
        var faults: [Fault] = [.fails(EIO), .death]
        if needsRoom(call) {
            var full: [Fault] = [.stays(ENOSPC), .fails(ENOSPC), .stays(EDQUOT), .fails(EDQUOT)]
            // Only content can exceed the limit of file sizes.
            if call == .write || call == .copy { full += [.stays(EFBIG), .fails(EFBIG)] }
            faults += effort.choice(of: full, at: number)
        }
        switch call {
        case .create: faults.append(.fails(EMFILE))
        case .write, .copy: faults.append(.short)
        case .createEmpty, .makeDirectory, .truncate, .sync, .syncDirectory, .syncFileSystem, .link,
            .rename, .unlink, .touch:
            break
        }
        // Directories apart: a starting daemon syncs one, and a journal would include the others.
        let later =
            [PowerCut(content: .lost, names: .undone, order: .apart)] + PowerCut.corners[1...2]
        if call == .sync || call == .truncate {
            faults += effort.choice(of: later.map { .failsThenCut($0) }, at: number)
        }
        faults += effort.choice(of: later.map { .deathThenCut($0) }, at: number, every: 2)
        faults += effort.choice(of: jumps.map { .jumps($0) }, at: number, every: 3)
        return faults + cuts(number, effort)
    }

    /// A crash, an error, and an eighth of the other faults.
    static func chosen(
        for call: Disk.Call,
        _ number: Int,
        _ effort: Effort,
        _ portion: Portion
    ) -> [Fault] {
        all(for: call, number, effort).enumerated().filter { index, _ in
            index < 2 || portion.includes(index + number, of: 8)
        }.map(\.element)
    }

    /// In seconds: beyond all lifetimes, forward and back.
    private static let jumps: [Int64] = [
        10 * 365 * 86_400, -10 * 365 * 86_400, 9 * 86_400, -9 * 86_400, 2 * 86_400, -2 * 86_400,
    ]

    /// `number` may be one more than the calls of the scenario.
    static func cuts(_ number: Int, _ effort: Effort) -> [Fault] {
        let corners = PowerCut.corners.map { Fault.cut($0) }
        switch effort {
        case .sample(let turn):
            // The seed differs between the calls of a scenario and between most scenarios.
            let random = Fault.cut(.random(UInt64(turn * 97 + number)))
            return effort.choice(of: corners, at: number)
                + effort.choice(of: [random], at: number, every: 2)
        case .whole(let seeds): return corners + seeds.map { .cut(.random($0)) }
        }
    }

    static func needsRoom(_ call: Disk.Call) -> Bool {
        switch call {
        case .create, .createEmpty, .makeDirectory, .write, .copy, .link, .rename, .sync: true
        case .truncate, .syncDirectory, .syncFileSystem, .unlink, .touch: false
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
