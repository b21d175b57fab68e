// The processor time, memory and threads of processes.
//
// Processor time is the sum in /proc/PID/stat (user and system time of all threads, ended ones included), but from the
// process's CPU-time clock, in nanoseconds instead of ticks of 10 ms.

import Glibc

/// The user and system seconds that `pid` has used; 0 if it is gone.
func processorSeconds(_ pid: pid_t) -> Double {
    var clock = clockid_t()
    guard clock_getcpuclockid(pid, &clock) == 0 else { return 0 }
    var time = timespec()
    guard clock_gettime(clock, &time) == 0 else { return 0 }
    return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
}

func threadSeconds() -> Double {
    var time = timespec()
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
}

func children(of parent: pid_t) -> [pid_t] {
    let path = "/proc/\(parent)/task/\(parent)/children"
    return readText(path).split(separator: " ").compactMap { pid_t($0) }
}

struct ProcessStatus {
    /// Resident memory, in bytes (`VmRSS`).
    let resident: Int64
    /// The peak since `resetPeak`, in bytes (`VmHWM`).
    let peak: Int64
    let threads: Int

    /// Reads the status of `pid`; all 0 if it is gone.
    init(_ pid: pid_t) {
        var numbers: [Substring: Int64] = [:]
        for line in readText("/proc/\(pid)/status").split(separator: "\n") {
            let words = line.split(whereSeparator: { $0 == ":" || $0 == "\t" || $0 == " " })
            if words.count >= 2, let number = Int64(words[1]) { numbers[words[0]] = number }
        }
        resident = (numbers["VmRSS"] ?? 0) << 10
        peak = (numbers["VmHWM"] ?? 0) << 10
        threads = Int(numbers["Threads"] ?? 0)
    }

    static func resetPeak(_ pid: pid_t) {
        let file = open("/proc/\(pid)/clear_refs", O_WRONLY | O_CLOEXEC)
        guard file >= 0 else { return }
        _ = write(file, "5", 1)
        close(file)
    }
}
