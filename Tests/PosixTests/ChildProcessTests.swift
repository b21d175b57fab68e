// Child processes: inheritance, exit, and cleanup.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@Suite struct ChildProcessTests {
    private func shell(_ script: String, limit: Int = 4096) throws -> ChildProcess {
        try ChildProcess(["/bin/sh", "-c", script], environment: [("A", "b c")], limit: limit)
    }

    private func run(_ script: String, limit: Int = 4096) throws -> (
        ChildProcess, ChildProcess.End?
    ) {
        let child = try shell(script, limit: limit)
        return (child, child.wait(until: .after(.seconds(300))))
    }

    /// False for a zombie.
    private func lives(_ process: Int32) -> Bool {
        let status = try? String(contentsOfFile: "/proc/\(process)/stat", encoding: .utf8)
        return status.map { !$0.contains(") Z ") } ?? false
    }

    @Test("it reports exit status, output and errors")
    func exits() throws {
        let (child, end) = try run("echo out; echo err >&2; exit 7")
        #expect(end == .exited(7))
        #expect(String(decoding: child.output, as: UTF8.self) == "out\n")
        #expect(String(decoding: child.errors, as: UTF8.self) == "err\n")
        #expect(child.wait(until: .after(.zero)) == .exited(7), "its end was reported twice")
    }

    @Test("it reports the signal that ended it")
    func signalled() throws {
        #expect(try run("kill -SEGV $$").1 == .signalled(SIGSEGV))
    }

    @Test("a signal that its parent ignores still ends it", arguments: [SIGXFSZ, SIGPIPE])
    func defaultDispositions(number: Int32) throws {
        Signals.ignoreFileSizeLimit()
        // Every program here first ignores both.
        _ = signal(number, SIG_IGN)
        #expect(try run("kill -\(number) $$").1 == .signalled(number))
    }

    @Test("a missing program is an error that names it")
    func missing() {
        let error = #expect(throws: SystemError.self) {
            try ChildProcess(["/nowhere/program"], environment: [], limit: 1)
        }
        #expect(error?.description == "posix_spawn /nowhere/program: No such file or directory")
    }

    @Test("it inherits no descriptor, no variable, no signal mask and no group")
    func inheritsNothing() throws {
        // Without close-on-exec, like a careless library.
        let careless = open("/dev/null", O_RDONLY)
        defer { close(careless) }
        var set = sigset_t()
        var before = sigset_t()
        sigemptyset(&set)
        sigaddset(&set, SIGTERM)
        pthread_sigmask(SIG_BLOCK, &set, &before)
        defer { pthread_sigmask(SIG_SETMASK, &before, nil) }
        let (child, _) = try run(
            """
            ls /proc/self/fd | tr '\\n' ' '; env | grep -v ^PWD= | grep -v ^_= | grep -v ^SHLVL= \
            | tr '\\n' ' '; grep SigBlk /proc/self/status | tr -d '\\t'; \
            [ "$(cut -d' ' -f5 /proc/$$/stat)" = $$ ] && echo own
            """
        )
        // 3 is the directory that ls reads.
        #expect(
            String(decoding: child.output, as: UTF8.self)
                == "0 1 2 3 A=b c SigBlk:0000000000000000\nown\n"
        )
    }

    @Test("output beyond the limit is read and dropped")
    func floods() throws {
        let (child, end) = try run(
            "head -c 3000000 /dev/zero; head -c 300000 /dev/zero >&2",
            limit: 100
        )
        #expect(end == .exited(0))
        #expect(child.output.count == 100 && child.errors.count == 100)
    }

    @Test("a wait ends at its deadline, also during a flood of output")
    func waits() throws {
        let child = try shell("exec cat /dev/zero")
        #expect(child.wait(until: .after(.milliseconds(50))) == nil)
        child.terminate(grace: .seconds(60))
        #expect(child.wait(until: .after(.zero)) == .signalled(SIGTERM))
    }

    @Test("a process that ignores SIGTERM is killed")
    func kills() throws {
        let child = try shell("trap '' TERM; echo ready; while :; do sleep 0.01; done")
        try eventually("it ignores SIGTERM") {
            _ = child.wait(until: .after(.milliseconds(5)))
            return !child.output.isEmpty
        }
        child.terminate(grace: .milliseconds(10))
        #expect(child.wait(until: .after(.zero)) == .signalled(SIGKILL))
    }

    @Test("grandchildren that keep its outputs open delay nothing, and are killed")
    func grandchildren() throws {
        let (child, end) = try run("sleep 600 & echo $!; exit 0")
        #expect(end == .exited(0))
        let text = String(decoding: child.output, as: UTF8.self)
        let process = try #require(Int32(text.dropLast()))
        try eventually("the grandchild has ended") { !lives(process) }
    }

    @Test("an abandoned process is killed and reaped")
    func letGo() throws {
        var child: ChildProcess? = try shell("echo $$; exec sleep 600")
        try eventually("it runs") {
            _ = child?.wait(until: .after(.milliseconds(5)))
            return child?.output.last == UInt8(ascii: "\n")
        }
        let text = String(decoding: child?.output ?? [], as: UTF8.self)
        let process = try #require(Int32(text.dropLast()))
        child = nil
        #expect(kill(process, 0) == -1 && errno == ESRCH, "a zombie was left")
    }

    @Test("many processes from many threads leave no descriptor and no zombie")
    func many() throws {
        func descriptors() throws -> Int {
            try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count
        }
        let before = try descriptors()
        let ended = Monitor(0)
        for _ in 0..<8 {
            try SpoolgatePosix.Thread.start(name: "runner") {
                for number in 0..<10 {
                    let end = try? run("echo x; exit \(number)").1
                    if end == .exited(Int32(number)) { ended.update { $0 += 1 } }
                }
            }
        }
        let all: Bool? = ended.wait(until: .after(.seconds(300))) { $0 == 80 ? true : nil }
        #expect(all == true)
        // Other suites run concurrently.
        try eventually("no descriptor is leaked") { try descriptors() < before + 40 }
    }
}
