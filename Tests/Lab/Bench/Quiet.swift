// Other processes' processor use while a row is measured.
//
// A process that keeps the disk busy without computing shows only in the spread of the figures. Kernel threads do not
// count, because they mostly write back the measured data.

import Glibc

struct OthersUse {
    /// The available processor seconds.
    var capacity = 0.0
    /// The processor seconds of others.
    var seconds = 0.0
    /// The same by command name, for known processes.
    var commands: [String: Double] = [:]

    /// The share of all processors, in percent.
    var percent: Double { capacity > 0 ? seconds / capacity * 100 : 0 }

    var text: String {
        let commands = largest.map { "\($0.command) \(decimal($0.percent, 1)) %" }
        return "\(decimal(percent, 1)) % of the machine: " + commands.joined(separator: ", ")
    }

    /// The three largest commands, each with its share in percent.
    var largest: [(command: String, percent: Double)] {
        commands.filter { $0.value > 0 }
            .sorted { ($1.value, $0.key) < ($0.value, $1.key) }
            .prefix(3)
            .map { ($0.key, $0.value / capacity * 100) }
    }

    static func sum(_ parts: [OthersUse]) -> OthersUse {
        parts.reduce(into: OthersUse()) { sum, part in
            sum.capacity += part.capacity
            sum.seconds += part.seconds
            sum.commands.merge(part.commands, uniquingKeysWith: +)
        }
    }

    /// Whether others used at most 10 % in the round, and 25 % in each of its rows.
    static func isQuiet(_ rows: [OthersUse]) -> Bool {
        sum(rows).percent <= 10 && rows.allSatisfy { $0.percent <= 25 }
    }
}

/// The processor seconds of the machine and its processes at one instant.
struct MachineLoad {
    private let time = now()
    private let busy: Double
    private let own: Double
    private let others: [pid_t: Process]
    private let kernel: Double

    /// Reads the figures; `stage` names the benchmark's processes.
    init(_ stage: Stage) {
        let processes = Process.all()
        let ownPIDs = stage.processes + [getpid()]
        busy = MachineLoad.busySeconds()
        own = ownPIDs.map(processorSeconds).reduce(0, +) + endedSeconds()
        kernel = processes.values.filter(\.isKernel).map(\.seconds).reduce(0, +)
        others = processes.filter { !$0.value.isKernel && !ownPIDs.contains($0.key) }
    }

    func use(since earlier: MachineLoad) -> OthersUse {
        let capacity = (time - earlier.time) * Double(sysconf(Int32(_SC_NPROCESSORS_ONLN)))
        let measured = own - earlier.own + kernel - earlier.kernel
        let seconds = max(0, busy - earlier.busy - measured)
        var commands: [String: Double] = [:]
        for (pid, process) in others {
            commands[process.command, default: 0] +=
                process.seconds - (earlier.others[pid]?.seconds ?? 0)
        }
        commands["ended meanwhile"] = seconds - commands.values.reduce(0, +)
        return OthersUse(capacity: capacity, seconds: seconds, commands: commands)
    }

    /// The processors' busy seconds, including time stolen by the host.
    private static func busySeconds() -> Double {
        guard let line = readText("/proc/stat").split(separator: "\n").first else { return 0 }
        let ticks = line.split(separator: " ").dropFirst().map { Double($0) ?? 0 }
        guard ticks.count >= 8 else { return 0 }
        // user nice system idle iowait irq softirq steal
        return (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7]) / ticksPerSecond
    }
}

/// A process, read from /proc/PID/stat.
private struct Process {
    /// At most 15 bytes.
    let command: String
    let isKernel: Bool
    let seconds: Double

    private init?(_ line: String) {
        // The name may contain spaces and parentheses.
        guard let first = line.firstIndex(of: "("), let last = line.lastIndex(of: ")") else {
            return nil
        }
        let fields = line[last...].split(separator: " ")
        guard fields.count > 13, let user = Double(fields[12]), let system = Double(fields[13])
        else { return nil }
        command = String(line[line.index(after: first)..<last])
        isKernel = fields[2] == "2"
        seconds = (user + system) / ticksPerSecond
    }

    static func all() -> [pid_t: Process] {
        var processes: [pid_t: Process] = [:]
        for name in directoryNames("/proc") {
            guard let pid = pid_t(name) else { continue }
            processes[pid] = Process(readText("/proc/\(name)/stat"))
        }
        return processes
    }
}

private let ticksPerSecond = Double(sysconf(Int32(_SC_CLK_TCK)))
