// The benchmark's child processes.
//
// Invariant: unless killed with SIGKILL, the benchmark ends and reaps every child before it exits. Each child leads its
// own process group, so that Ctrl-C reaches only the benchmark, which then ends the children in order.

import Glibc
import SpoolgatePosix
import Synchronization

private let running = Mutex<[pid_t]>([])

struct Child: Sendable {
    let pid: pid_t
    /// Its name in messages.
    let name: String
    let log: String

    /// Starts `program`; its errors, and its output unless `output` is given, go to the file `log`.
    static func start(
        _ name: String,
        program: String,
        arguments: [String],
        log: String,
        output: Int32? = nil
    ) throws -> Child {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        let mode = O_WRONLY | O_CREAT | O_APPEND
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log, mode, 0o644)
        posix_spawn_file_actions_adddup2(&actions, output ?? STDERR_FILENO, STDOUT_FILENO)

        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        sigemptyset(&none)
        var pipe = sigset_t()
        sigemptyset(&pipe)
        sigaddset(&pipe, SIGPIPE)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setsigdefault(&attributes, &pipe)
        posix_spawnattr_setpgroup(&attributes, 0)
        let flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP
        posix_spawnattr_setflags(&attributes, Int16(flags))

        var argv: [UnsafeMutablePointer<CChar>?] = ([program] + arguments).map { strdup($0) }
        argv.append(nil)
        var environment = keptEnvironment().map { strdup($0) } as [UnsafeMutablePointer<CChar>?]
        environment.append(nil)
        defer { (argv + environment).forEach { free($0) } }

        var pid: pid_t = 0
        let code = posix_spawnp(&pid, program, &actions, &attributes, argv, environment)
        guard code == 0 else { throw BenchFailure(call: "start", on: program, code: code) }
        running.withLock { $0.append(pid) }
        return Child(pid: pid, name: name, log: log)
    }

    /// The way it ended, as a sentence, or nil; it is not reaped.
    var ending: String? {
        var information = siginfo_t()
        let flags = WEXITED | WNOHANG | WNOWAIT
        guard waitid(P_PID, id_t(pid), &information, flags) == 0 else {
            return "\(name) is gone"
        }
        guard information.si_signo != 0 else { return nil }
        let status = information._sifields._sigchld.si_status
        return information.si_code == CLD_EXITED
            ? "\(name) ended with status \(status)" : "\(name) was ended by signal \(status)"
    }

    /// Waits for its exit status, or 128 plus the number of the signal that ended it.
    func waitForEnd() -> Int32 {
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0, errno == EINTR {}
        running.withLock { $0.removeAll { $0 == pid } }
        let signal = status & 0x7f
        return signal == 0 ? (status >> 8) & 0xff : 128 + signal
    }

    /// Ends it with SIGTERM, and after 10 s its group with SIGKILL.
    func end() {
        Child.end([pid])
        running.withLock { $0.removeAll { $0 == pid } }
    }

    static func endAll() {
        let pids = running.withLock { list in
            defer { list = [] }
            return list
        }
        end(pids.reversed())
    }

    private static func end(_ pids: [pid_t]) {
        for pid in pids { kill(pid, SIGTERM) }
        let deadline = now() + 10
        for pid in pids {
            var status: Int32 = 0
            while waitpid(pid, &status, WNOHANG) == 0 {
                if now() > deadline {
                    kill(-pid, SIGKILL)
                    waitpid(pid, &status, 0)
                    break
                }
                pause(0.005)
            }
        }
    }

    private static func keptEnvironment() -> [String] {
        let names = ["PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH"]
        return names.compactMap { (name: String) -> String? in
            getenv(name).map { name + "=" + String(cString: $0) }
        }
    }
}

private let isEnding = Atomic<Bool>(false)

/// Blocks forever if a signal is ending this process, because that causes the failures.
func waitIfEnding() {
    while isEnding.load(ordering: .relaxed) { pause(1) }
}

/// Runs `clean` and ends this process on SIGINT, SIGTERM or SIGHUP.
///
/// Call it before any thread is started: it blocks the signals in all threads but its own.
func endOnSignal(_ clean: @escaping @Sendable () -> Void) throws {
    signal(SIGPIPE, SIG_IGN)
    var signals = sigset_t()
    sigemptyset(&signals)
    for number in [SIGINT, SIGTERM, SIGHUP] { sigaddset(&signals, number) }
    pthread_sigmask(SIG_BLOCK, &signals, nil)
    let waited = signals
    try Thread.start(name: "signals") {
        var signals = waited
        var number: Int32 = 0
        sigwait(&signals, &number)
        isEnding.store(true, ordering: .relaxed)
        note("ended by signal \(number)")
        clean()
        _exit(128 + number)
    }
}
