// What processes cost: processor time, memory, threads.
//
// Processor time is the process's CPU-time clock: the same sum of user and system time that
// /proc/PID/stat tells, of all threads and of those that have ended, in nanoseconds where stat has
// ticks of 10 ms. Memory comes from /proc/PID/status.

import Glibc

/// Seconds of processor time that `pid` has used, in user and system mode; 0 if it is gone.
func processorSeconds(_ pid: pid_t) -> Double {
    var clock = clockid_t()
    guard clock_getcpuclockid(pid, &clock) == 0 else { return 0 }
    var time = timespec()
    guard clock_gettime(clock, &time) == 0 else { return 0 }
    return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
}

/// Seconds of processor time that the calling thread has used.
func threadSeconds() -> Double {
    var time = timespec()
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
}

/// The processes that `parent` has started and that still run.
func children(of parent: pid_t) -> [pid_t] {
    let path = "/proc/\(parent)/task/\(parent)/children"
    return readText(path).split(separator: " ").compactMap { pid_t($0) }
}

/// Some lines of /proc/PID/status.
struct ProcessStatus {
    /// Resident memory now, in bytes (`VmRSS`).
    let resident: Int64
    /// Most resident memory since `resetPeak`, in bytes (`VmHWM`).
    let peak: Int64
    /// Threads now.
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

    /// Makes `pid`'s peak its present memory, so that the next reading is of what follows.
    static func resetPeak(_ pid: pid_t) {
        let file = open("/proc/\(pid)/clear_refs", O_WRONLY | O_CLOEXEC)
        guard file >= 0 else { return }
        _ = write(file, "5", 1)
        close(file)
    }
}
