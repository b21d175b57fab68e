// What can happen at one call on the disk.

import Foundation
import Posix

/// How much is tried.
enum Effort: Sendable {
    /// Every kind of fault at every call; of the ways to be full one, of the power cuts a few.
    case quick
    /// All of it, and these power cuts beside the corners.
    case whole(seeds: [UInt64])

    var isWhole: Bool {
        switch self {
        case .quick: false
        case .whole: true
        }
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

    var description: String {
        switch self {
        case .fails(let errno): "fails(\(Self.name(errno)))"
        case .stays(let errno): "stays(\(Self.name(errno)))"
        case .short: "short"
        case .death: "death"
        case .cut(let cut): "\(cut)"
        case .jumps(let seconds): "jumps(\(seconds))"
        case .failsThenCut(let cut): "failsThen-\(cut)"
        }
    }

    /// Whether calls fail and the process lives on.
    var isError: Bool {
        switch self {
        case .fails, .stays, .short, .failsThenCut: true
        case .death, .cut, .jumps: false
        }
    }

    /// The cut of its end; nil: the power stays.
    var cut: PowerCut? {
        switch self {
        case .cut(let cut), .failsThenCut(let cut): cut
        case .fails, .stays, .short, .death, .jumps: nil
        }
    }

    /// What is tried at call `number`, which is of this kind.
    static func all(for call: Disk.Call, _ number: Int, _ effort: Effort) -> [Fault] {
        var faults: [Fault] = [.fails(EIO), .death]
        if needsRoom(call) {
            let full: [Fault] = [.stays(ENOSPC), .fails(ENOSPC), .stays(EDQUOT), .fails(EDQUOT)]
            faults += effort.isWhole ? full : [full[number % full.count]]
        }
        switch call {
        case .create: faults.append(.fails(EMFILE))
        case .write: faults.append(.short)
        case .makeDirectory, .truncate, .sync, .syncDirectory, .link, .rename, .unlink, .touch:
            break
        }
        if call == .sync || call == .truncate {
            faults += PowerCut.corners.prefix(2).map { .failsThenCut($0) }
        }
        faults += effort.isWhole ? jumps.map { .jumps($0) } : [.jumps(jumps[number % jumps.count])]
        return faults + cuts(number, effort)
    }

    /// How far the clock is set: beyond the time that anything is kept, forward and back.
    private static let jumps: [Int64] = [
        10 * 365 * 86_400, -10 * 365 * 86_400, 9 * 86_400, -9 * 86_400, 2 * 86_400, -2 * 86_400,
    ]

    /// The power cuts that are tried at call `number`, or behind the last.
    static func cuts(_ number: Int, _ effort: Effort) -> [Fault] {
        let corners = PowerCut.corners
        switch effort {
        case .quick:
            // Each corner at every third call or so, and one that no other call has.
            let few = (0..<2).map { corners[(number * 2 + $0) % corners.count] }
            return few.map { .cut($0) } + [.cut(.random(UInt64(number)))]
        case .whole(let seeds): return (corners + seeds.map { .random($0) }).map { .cut($0) }
        }
    }

    /// Whether a call of this kind can find a disk full.
    static func needsRoom(_ call: Disk.Call) -> Bool {
        switch call {
        case .create, .makeDirectory, .write, .link, .rename, .sync: true
        case .truncate, .syncDirectory, .unlink, .touch: false
        }
    }

    private static func name(_ errno: Int32) -> String {
        switch errno {
        case EIO: "EIO"
        case ENOSPC: "ENOSPC"
        case EDQUOT: "EDQUOT"
        case EMFILE: "EMFILE"
        default: "\(errno)"
        }
    }
}
