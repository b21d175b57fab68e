// `make run` leaves no process behind, whichever is killed, and its printed example works.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("make run")
struct MakeRunTests {
    /// The tests' user and, if that is root, an unprivileged one.
    static let users: [String?] = getuid() == 0 ? [nil, "nobody"] : [nil]

    /// An upstream that receives no request.
    private static let upstream = "http://127.0.0.1:9"

    // Long because each run of `make run` starts and ends nine processes, as two users.
    @Test(
        "killing any of its starters leaves no process and no open port",
        arguments: Portion.ofThisRun.taken(
            from: [
                [MakeRun.Role.make], [.script], [.script, .master], [.make, .script, .worker],
            ],
            of: 2
        ),
        users
    )
    func endsWhole(victims: [MakeRun.Role], user: String?) throws {
        let run = try MakeRun(user: user, upstream: Self.upstream)
        let found = victims.map { run.process($0) }
        try #require(!found.contains(nil), "no such process: \(victims)")
        for victim in found { kill(victim ?? 0, SIGKILL) }
        try run.awaitNothing()
    }

    // Long because each run of `make run` waits until a killed process is replaced, as two users.
    @Test(
        "each killed server process is restarted, with nothing left of the old one",
        arguments: [[MakeRun.Role.gateway], [.master], [.worker], [.keeper], [.keeper, .master]],
        users
    )
    func startsAgain(victims: [MakeRun.Role], user: String?) throws {
        let run = try MakeRun(user: user, upstream: Self.upstream)
        let before = Dictionary(
            uniqueKeysWithValues: MakeRun.Role.allCases.map { ($0, run.process($0)) }
        )
        let oldWorkers = run.processes().filter { !before.values.contains($0) }
        for victim in victims { kill(try #require(before[victim] ?? nil), SIGKILL) }
        try eventually("new processes run; the output: \(run.output)") {
            victims.allSatisfy { role in
                run.process(role).map { $0 != before[role] ?? nil } ?? false
            } && run.serves()
        }
        if victims.contains(.master) {
            let left = Set(run.processes()).intersection(oldWorkers)
            #expect(left.isEmpty, "workers of the killed master are left")
        }
        // The keeper knows the new processes, so they end with the script.
        kill(try #require(run.process(.script)), SIGKILL)
        try run.awaitNothing()
    }

    @Test("the next run starts at once after one that ended or was killed")
    func beginsAgain() throws {
        let run = try MakeRun(upstream: Self.upstream)
        run.end()
        try run.awaitNothing()
        try run.startAgain()
        #expect(run.serves())
        kill(try #require(run.process(.script)), SIGKILL)
        try run.startAgain()
        #expect(run.serves())
        run.end()
        try run.awaitNothing()
    }

    @Test("the page's address is printed first, and the page is available", arguments: users)
    func page(user: String?) throws {
        let run = try MakeRun(user: user, upstream: Self.upstream)
        let printed = try #require(run.output.firstRange(of: "http://"))
        let address = "http://localhost:\(run.port)/upload/"
        #expect(run.output[printed.lowerBound...].hasPrefix(address))
        let files = try FileManager.default.contentsOfDirectory(
            atPath: Sandbox.root.appending(path: "nginx/demo").path()
        )
        for name in [""] + files {
            let response = try WireClient(port: run.port).ask("GET", "/upload/\(name)")
            #expect(response.status == 200, "\(name)")
            #expect(response["content-security-policy"]?.contains("default-src 'self'") == true)
        }
        #expect(try WireClient(port: run.port).ask("GET", "/upload")["location"] == "/upload/")
        run.end()
        try run.awaitNothing()
    }

    private static let loopback: Set<String> = ["0100007F", "00000000000000000000000001000000"]
    private static let any: Set<String> = ["00000000", String(repeating: "0", count: 32)]

    @Test(
        "it listens on this machine only, unless an address or all interfaces are given",
        arguments: ["", "127.0.0.1", "*", "0.0.0.0", "127.0.0.9"]
    )
    func reach(address: String) throws {
        let run = try MakeRun(
            upstream: Self.upstream,
            variables: ["ADDRESS": address, "NAMES": "given.test", "BUILD": "4711"]
        )
        let isOpen = ["*", "0.0.0.0"].contains(address)
        var expected = isOpen ? Self.any : Self.loopback
        if address == "127.0.0.9" { expected.insert("0900007F") }
        for port in [run.port, run.tlsPort] {
            let addresses = try run.addresses(of: port)
            // Not every machine has IPv6.
            #expect(addresses.isSubset(of: expected) && !addresses.isEmpty, "\(addresses)")
            #expect(addresses.contains { $0.count == 8 })
            #expect(address != "127.0.0.9" || addresses.contains("0900007F"))
        }
        let reach = try #require(run.output.firstMatch(of: /listens on   (.*)\n/)).1
        switch address {
        case "", "127.0.0.1": #expect(reach.contains("this machine only"))
        case "127.0.0.9":
            let words = " and 127.0.0.9: any machine that can connect to 127.0.0.9 may upload"
            #expect(reach.hasSuffix(words), "\(reach)")
        default: #expect(reach.hasPrefix("all interfaces: "))
        }
        // The machine's names count only if other machines can connect.
        let own = ProcessInfo.processInfo.hostName
        let names = try #require(run.output.firstMatch(of: /host names   (.*)\n/)).1
            .split(separator: " ").map(String.init)
        #expect(names.contains("given.test"))
        #expect(names.contains(address) == (address == "127.0.0.9" || address == "127.0.0.1"))
        for name in names + [own] where !name.hasPrefix("[") {
            let response = try Command(
                Command.find("curl") ?? "curl",
                [
                    "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Host: \(name)",
                    "http://127.0.0.1:\(run.port)/",
                ]
            )
            #expect(response.output == (names.contains(name) ? "404" : "421"), "\(name)")
        }
        if address.isEmpty { #expect(!names.contains(own) || own == "localhost") }
        // The programs report their build.
        let version = try run.paste(".build/release/spoolgate --version")
        #expect(version.output == "0.1.0 (4711)\n", "\(version)")
        run.end()
        try run.awaitNothing()
    }

    @Test("an invalid address is refused by name")
    func noAddress() {
        #expect {
            try MakeRun(upstream: Self.upstream, variables: ["ADDRESS": "elsewhere"])
        } throws: { "\($0)".contains("run: ADDRESS is not an address: elsewhere") }
    }

    @Test("a port in use is refused by name")
    func portInUse() throws {
        let other = try LoopbackOrigin()
        defer { other.stop() }
        let port = try #require(other.base.split(separator: ":").last)
        #expect {
            try MakeRun(upstream: Self.upstream, variables: ["PORT": "\(port)"])
        } throws: {
            "\($0)".contains("port \(port) is in use by another program: set PORT to another")
        }
    }

    @Test("the printed example can be pasted: cut, resumed, identical, nothing outside .run")
    func printedExample() throws {
        let run = try MakeRun()
        let printed = try #require(
            run.output.range(of: "In another terminal:\n").map { run.output[$0.upperBound...] }
        )
        try expectExample(String(printed), in: run)
    }

    @Test("the README has the same example")
    func exampleOfREADME() throws {
        let run = try MakeRun()
        let readme = try String(
            contentsOf: Sandbox.root.appending(path: "README.md"),
            encoding: .utf8
        )
        let section = try #require(
            readme.components(separatedBy: "\n## Try it\n").dropFirst().first
        )
        let blocks = section.components(separatedBy: "\n## ")[0].components(separatedBy: "```sh\n")
        let block = try #require(blocks.first { $0.contains("100mb.bin") })
            .components(separatedBy: "```")[0]
            .replacingOccurrences(of: ":8080/", with: ":\(run.port)/")
            .replacingOccurrences(of: ":8443/", with: ":\(run.tlsPort)/")
        try expectExample(block, in: run)
    }

    private func expectExample(_ commands: String, in run: MakeRun) throws {
        let before = try FileManager.default.contentsOfDirectory(
            atPath: run.clone.path(percentEncoded: false)
        )
        let seen = try run.paste(commands)
        let offset = try #require(
            seen.output.firstMatch(of: /(\d+) of 104857600 bytes/).flatMap { Int($0.output.1) },
            "\(seen.output)\n\(seen.errors)"
        )
        #expect(offset > 0 && offset < 104_857_600, "the upload was not cut in the middle")
        #expect(seen.errors.contains("curl: (28)"))
        #expect(seen.output.contains("\nidentical\n"), "\(seen.output)\n\(seen.errors)")
        #expect(seen.output.contains("HTTP/2 201"))
        let after = try FileManager.default.contentsOfDirectory(
            atPath: run.clone.path(percentEncoded: false)
        )
        #expect(Set(after) == Set(before))
        run.end()
        try run.awaitNothing()
    }
}
