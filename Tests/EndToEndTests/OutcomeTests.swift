// Results of uploads whose upstream misbehaves, and the deliveries in its log.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("Misbehaving upstreams")
struct OutcomeTests {
    private static let content = Data(repeating: 7, count: 400_000)
    private static let quick = "queue: {minimum-backoff: 1s, maximum-backoff: 1s}"

    // Long because of its rows, each with its own sandbox.
    @Test(
        "the waiting client gets the true result, and a POST is never sent twice",
        arguments: Trouble.allCases,
        ["POST", "PUT"]
    )
    func waiting(trouble: Trouble, method: String) throws {
        let upstream = try LoopbackOrigin(trouble)
        let sandbox = try Sandbox(
            upstream: upstream.base,
            routeSettings: [trouble.timeouts, Self.quick]
        )
        let client = try sandbox.open(method, "/files/a", ["Upload-Complete: ?0"], length: 0)
        let resource = String(try #require(try client.read()["location"]).drop(upTo: "/files/"))
        let response = try sandbox.append(resource, Self.content)
        let isSafe = method == "PUT"
        switch trouble.end {
        case .responded(let status):
            #expect(response.status == status)
            #expect(response["upload-complete"] == "?1")
            if trouble == .huge { #expect(response.content.count == LoopbackOrigin.hugeSize) }
            try checkReplay(sandbox, resource, status, isWhole: trouble != .huge)
            #expect(upstream.requests(to: "/files/a").count == 1)
        case .deferred(let status):
            #expect(response.status == status)
            #expect(response["upload-complete"] == (isSafe ? "?0" : "?1"))
            try comeBack(sandbox, resource, isSafe ? 201 : status)
            #expect(upstream.requests(to: "/files/a").count == (isSafe ? 2 : 1))
        case .unknown:
            #expect([502, 504].contains(response.status))
            #expect(response["upload-complete"] == (isSafe ? "?0" : "?1"))
            #expect(
                try sandbox.spoolgate("list").output.contains(isSafe ? "deferred" : "indeterminate")
            )
            try comeBack(sandbox, resource, isSafe ? 201 : 502)
            #expect(upstream.requests(to: "/files/a").count == (isSafe ? 2 : 1))
        }
    }

    private func checkReplay(
        _ sandbox: Sandbox,
        _ resource: String,
        _ status: Int,
        isWhole: Bool
    ) throws {
        let again = try sandbox.append(resource, offset: Self.content.count)
        #expect(again.status == status)
        #expect(again.content.isEmpty == !isWhole)
    }

    /// A retry by the client and a run of the queue: no further delivery.
    private func comeBack(_ sandbox: Sandbox, _ resource: String, _ status: Int) throws {
        let again = try sandbox.append(resource, offset: Self.content.count)
        #expect(again.status == status)
        sandbox.daemon.signal(SIGUSR1)
        let other = try sandbox.ask("PUT", "/files/other", content: Data("x".utf8))
        #expect(other.status == 201)
    }

    // Long because each row waits for attempts after the queue's pauses.
    @Test(
        "an accepted upload ends delivered, or held with its cause; a POST is never sent twice",
        arguments: Trouble.allCases,
        ["POST", "PUT"]
    )
    func accepted(trouble: Trouble, method: String) throws {
        let upstream = try LoopbackOrigin(trouble)
        let sandbox = try Sandbox(
            upstream: upstream.base,
            routeSettings: [trouble.timeouts, Self.quick, "reply: accepted"]
        )
        let fields = ["Upload-Complete: ?1"]
        let response = try sandbox.ask(method, "/files/a", fields, content: Self.content)
        #expect(response.status == 202)
        let link = try #require(response["link"])
        let status = String(link.drop(upTo: "/files/").prefix { $0 != ">" })
        let isSafe = method == "PUT"
        let (state, count) =
            switch trouble.end {
            case .responded(let code): (code < 400 ? "delivered" : "failed", 1)
            case .deferred: isSafe ? ("delivered", 2) : ("failed", 1)
            case .unknown: isSafe ? ("delivered", 2) : ("indeterminate", 1)
            }
        try eventually("\(trouble) \(method) is \(state); log: \(sandbox.log.suffix(1_000))") {
            let told = try sandbox.ask("GET", status)
            return told.text.contains("\"state\":\"\(state)\"")
        }
        #expect(upstream.requests(to: "/files/a").count == count)
        // The next daemon delivers nothing more.
        try sandbox.crash()
        let other = try sandbox.ask("PUT", "/files/other", content: Data("x".utf8))
        #expect(other.status == 202)
        try eventually("the other upload is delivered") {
            upstream.requests(to: "/files/other").count == 1
        }
        #expect(upstream.requests(to: "/files/a").count == count)
    }

    @Test(
        "delivery to an unreachable upstream is retried until it is back",
        arguments: ["POST", "PUT"]
    )
    func unreached(method: String) throws {
        let port = try FreePort.take(1)[0]
        let sandbox = try Sandbox(
            upstream: "http://127.0.0.1:\(port)",
            routeSettings: [Self.quick, "reply: accepted"]
        )
        let response = try sandbox.ask(
            method,
            "/files/index.php",
            ["Upload-Complete: ?1"],
            content: Self.content
        )
        #expect(response.status == 202)
        // The retry survives a crash, which comes between two attempts.
        try eventually("deferred") {
            sandbox.daemon.signal(SIGSTOP)
            try eventually("the daemon is stopped") { sandbox.daemon.isStopped }
            let isBetween =
                sandbox.log.contains("delivery deferred")
                && sandbox.log.ranges(of: "delivery started").count
                    == sandbox.log.ranges(of: "delivery deferred").count
            if isBetween { sandbox.kill() } else { sandbox.daemon.signal(SIGCONT) }
            return isBetween
        }
        try sandbox.startAgain()
        let upstream = try RealUpstream(port: port)
        try eventually("delivered; log: \(sandbox.log.suffix(1_000))") {
            try upstream.phpCalls() == 1
        }
        try eventually("the state is stored") {
            try sandbox.spoolgate("list").output.contains("delivered")
        }
        #expect(try upstream.phpCalls() == 1)
    }
}
