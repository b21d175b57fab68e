// How much of the machine other processes use while a row is measured.
//
// It sees processors only: another process that keeps the disk busy without computing shows in the
// spread of the figures alone.

import Glibc

/// Processor seconds of the whole machine and of the benchmark's own processes, at one instant.
struct MachineLoad {
    private let time = now()
    private let busy: Double
    private let own: Double

    /// Reads the instant; `stage` names the processes that are the benchmark's.
    init(_ stage: Stage) {
        busy = MachineLoad.busySeconds()
        own =
            stage.serverSeconds + processorSeconds(stage.sinkPID) + processorSeconds(getpid())
            + endedSeconds()
    }

    /// The share of all processors, in percent, that others have used since `earlier`.
    func othersPercent(since earlier: MachineLoad) -> Double {
        let whole = (time - earlier.time) * Double(sysconf(Int32(_SC_NPROCESSORS_ONLN)))
        let others = (busy - earlier.busy) - (own - earlier.own)
        return whole > 0 ? max(0, others / whole * 100) : 0
    }

    /// Seconds in which any processor did something, time taken by a host's other guests included.
    private static func busySeconds() -> Double {
        guard let line = readText("/proc/stat").split(separator: "\n").first else { return 0 }
        let ticks = line.split(separator: " ").dropFirst().map { Double($0) ?? 0 }
        guard ticks.count >= 8 else { return 0 }
        // user nice system idle iowait irq softirq steal
        let busy = ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7]
        return busy / Double(sysconf(Int32(_SC_CLK_TCK)))
    }
}
