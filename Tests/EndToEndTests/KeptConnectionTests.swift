// Requests on nginx's kept connections continue while the daemon restarts.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@Suite(
    "Connections that nginx keeps",
    .enabled(if: Command.find("nginx") != nil, "nginx is not installed")
)
struct KeptConnectionTests {
    private struct Counter {
        var statuses: [Int: Int] = [:]
        var isEnded = false
    }

    private func sendMany(_ number: Int, port: Int, _ tally: Monitor<Counter>) throws {
        var client = try WireClient(port: port)
        var count = 0
        while !tally.update({ $0.isEnded }) {
            count += 1
            let target = "/files/\(number)-\(count)"
            do {
                let response = try client.ask("PUT", target, content: Data("some bytes".utf8))
                tally.update { $0.statuses[response.status, default: 0] += 1 }
            } catch is WireClient.Broken {
                // While the daemon does not listen, nginx also closes its clients' connections (444).
                client = try WireClient(port: port)
            }
        }
    }

    private func sockets(of process: Int32) -> Int {
        let folder = "/proc/\(process)/fd"
        let numbers = (try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []
        return numbers.count { number in
            let target = try? FileManager.default.destinationOfSymbolicLink(
                atPath: "\(folder)/\(number)"
            )
            return target?.hasPrefix("socket:") == true
        }
    }

    @Test("no request is lost on a kept connection while the daemon restarts")
    func restarts() throws {
        let sandbox = try Sandbox(front: .nginxKeeping)
        #expect(try sandbox.ask("PUT", "/files/first", content: Data("x".utf8)).status == 201)
        // Two listeners and the kept connection.
        try eventually("a connection is kept") { sockets(of: sandbox.daemon.id) == 3 }
        #expect(try sandbox.ask("PUT", "/files/second", content: Data("x".utf8)).status == 201)
        try eventually("the same one is kept") { sockets(of: sandbox.daemon.id) == 3 }
        let tally = Monitor(Counter())
        let port = sandbox.port
        let ended = Monitor<[Result<Void, any Error>]?>(nil)
        Foundation.Thread.detachNewThread {
            let results = Parallel.run(8) { try sendMany($0, port: port, tally) }
            ended.update { $0 = results }
        }
        for _ in 0..<5 {
            let stored = tally.update { $0.statuses[201] ?? 0 }
            try eventually("uploads are stored") {
                tally.update { $0.statuses[201] ?? 0 } > stored + 200
            }
            sandbox.daemon.signal(SIGTERM)
            #expect(sandbox.daemon.wait() == 0)
            try sandbox.startAgain()
        }
        tally.update { $0.isEnded = true }
        for result in ended.wait(until: .after(.seconds(300)), { $0 }) ?? [] { try result.get() }
        let errors = try String(
            contentsOf: sandbox.directory.appending(path: "nginx/log/error.log"),
            encoding: .utf8
        ).components(separatedBy: "\n").filter { $0.contains("[error]") }
        // nginx cannot connect while the daemon does not listen; any other error would be a lost request.
        #expect(errors.filter { !$0.contains("connect() to unix:") } == [])
        let statuses = tally.update { $0.statuses }
        #expect(Array(statuses.keys) == [201], "\(statuses)")
    }
}
