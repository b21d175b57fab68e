// Several targets: the choice, and that no second target gets a request that a first may have received.

import Foundation
import HTTPTypes
import SpoolgateCurl
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Synchronization
import Testing

@testable import SpoolgateUpstream

@Suite("Several targets")
struct FailoverTests {
    /// The reasons for skipped targets.
    private final class Skipped: Sendable {
        private let all = Mutex<[String]>([])
        var reasons: [String] { all.withLock { $0 } }
        func note(_ reason: String) { all.withLock { $0.append(reason) } }
    }

    private func upstream(
        _ targets: [String],
        connect: Duration = .seconds(60),
        response: Duration = .seconds(60),
        authority: String? = nil,
        skipped: Skipped = Skipped()
    ) throws -> Upstream {
        var settings = UpstreamSettings(
            targets: try targets.map { try UpstreamTarget($0) },
            connectTimeout: connect,
            stallTimeout: .seconds(30),
            responseTimeout: response
        )
        settings.tls.authorities = authority
        return Upstream(settings, skipped: skipped.note)
    }

    private func deadBase() throws -> String {
        let origin = try LoopbackOrigin()
        let base = origin.base
        origin.stop()
        try eventually("\(base) refuses") {
            try self.upstream([base]).attempt("GET")
                .isNotReached
        }
        return base
    }

    private let contents: [UpstreamContent] = [
        .none, .bytes([1, 2]), pattern(300_000),
        framedPattern(before: 9, middle: 200_000, after: 9),
        patternStream(100_000, piece: 9000, saysLength: false),
    ]

    @Test("the first reachable target gets every request, in the written order")
    func order() throws {
        let (first, second) = (try LoopbackOrigin(), try LoopbackOrigin())
        let skipped = Skipped()
        let upstream = try upstream([first.base, second.base], skipped: skipped)
        for content in contents {
            #expect(try upstream.attempt("POST", content: content) == .responded)
        }
        #expect(first.requests.count == contents.count)
        #expect(first.connectionCount == contents.count)
        #expect(second.connectionCount == 0)
        #expect(skipped.reasons.isEmpty)
    }

    @Test("an unreachable target is followed by the next, which gets the whole content")
    func next() throws {
        let directory = try ScratchDirectory()
        let socket = directory.file("app.sock")
        let origin = try LoopbackOrigin(socketPath: socket)
        let dead = try deadBase()
        let skipped = Skipped()
        let lengths = [0, 2, 300_000, 200_018, 100_000]
        for (content, length) in zip(contents, lengths) {
            // A new upstream has no record of unreachable targets.
            let upstream = try upstream(
                [dead, "unix:\(directory.file("none"))", "unix:\(socket)"],
                skipped: skipped
            )
            #expect(try upstream.attempt("POST", content: content) == .responded)
            #expect(origin.requests.last?.contentLength == length)
            #expect(length == 2 || isPattern(origin.requests.last?.content ?? []))
        }
        #expect(origin.requests.count == contents.count)
        #expect(skipped.reasons.count == contents.count)
        let reason = try #require(skipped.reasons.first)
        #expect(reason.contains("POST /x to \(dead): connection failed"), "\(reason)")
        #expect(
            reason.contains("; and POST /x to unix:\(directory.file("none")): connection failed")
        )
    }

    @Test(
        "all unreachable: not reached, with every reason, and a timeout only if it was one for all"
    )
    func allDead() throws {
        let dead = try deadBase()
        // This target never answers the TLS handshake.
        let mute = try LoopbackOrigin { $0.waitForEnd() }
        let muteBase = "https://127.0.0.1:\(mute.port)"
        let mixed = try upstream([dead, muteBase], connect: .milliseconds(200))
            .attempt("POST", content: .bytes([1]))
        #expect(mixed.isNotReached && !mixed.timedOut)
        #expect(mixed.reason.contains("to \(dead): connection failed"))
        #expect(mixed.reason.contains("; and POST /x to \(muteBase): no connection within"))

        let slow = try upstream([muteBase, muteBase + "/b"], connect: .milliseconds(200))
            .attempt("GET")
        #expect(slow.isNotReached && slow.timedOut, "\(slow)")
        #expect(mute.connectionCount == 3)
    }

    @Test(
        "a request that a first target may have received is never sent to a second",
        arguments: ["ends", "resets", "falls silent", "talks nonsense", "answers 503"]
    )
    func onlyNotReached(how: String) throws {
        let first = try LoopbackOrigin { connection in
            _ = try connection.receiveHead()
            switch how {
            case "ends": break
            case "resets": connection.reset()
            case "falls silent": connection.waitForEnd()
            case "talks nonsense": try connection.send("SSH-2.0-x\r\n\r\n")
            default: try connection.response("503 Later")
            }
        }
        let second = try LoopbackOrigin()
        for method in ["POST", "PUT"] {
            let sink = RecordingSink()
            let outcome = try upstream(
                [first.base, second.base],
                response: how == "falls silent" ? .milliseconds(500) : .seconds(60)
            ).attempt(method, content: .bytes([1]), sink: sink)
            let isResponse = how == "answers 503"
            #expect(isResponse ? outcome == .responded : outcome.isIndeterminate, "\(outcome)")
            #expect(outcome.timedOut == (how == "falls silent"))
            #expect(sink.head?.status.code == (isResponse ? 503 : nil))
        }
        #expect(second.connectionCount == 0)
    }

    @Test(
        "an untrusted certificate counts as not reached",
        .enabled(if: OpenSSLCommand.isThere)
    )
    func certificate() throws {
        let (authority, other) = (try TestAuthority(), try TestAuthority())
        let wrong = try OpenSSLCommand(serving: other.identity("localhost"))
        let right = try OpenSSLCommand(serving: authority.identity("localhost"))
        let skipped = Skipped()
        let outcome = try upstream(
            [wrong.base, right.base],
            authority: authority.certificate,
            skipped: skipped
        ).attempt("GET", "/")
        #expect(outcome == .responded, "\(outcome)")
        #expect(skipped.reasons.first?.contains("could not be verified") == true)
    }

    @Test("an unreachable first target is tried once, and then last for a while")
    func avoided() throws {
        let mute = try LoopbackOrigin { $0.waitForEnd() }
        let origin = try LoopbackOrigin()
        let skipped = Skipped()
        let upstream = try upstream(
            ["https://127.0.0.1:\(mute.port)", origin.base],
            // Long enough for the working target, even on a busy machine.
            connect: .seconds(3),
            skipped: skipped
        )
        for _ in 1...20 {
            #expect(try upstream.attempt("POST", content: .bytes([1])) == .responded)
        }
        #expect(mute.connectionCount == 1)
        #expect(origin.requests.count == 20)
        #expect(skipped.reasons.count == 1)
    }

    @Test("a request that cannot be sent at all is no target's fault")
    func unsendable() throws {
        let (first, second) = (try LoopbackOrigin(), try LoopbackOrigin())
        let upstream = try upstream([first.base, second.base])
        let outcome = try upstream.attempt("GET", "/a b")
        #expect(outcome.isNotReached)
        #expect(!outcome.reason.contains("; and"), "\(outcome)")
        #expect(try upstream.attempt("GET") == .responded)
        #expect(first.requests.count == 1)
        #expect(second.connectionCount == 0)
    }

    // MARK: The order of targets

    @Test("the order is the written one, recently unreachable ones last; each occurs once")
    func orderOfIndices() {
        let order = TargetOrder(count: 4, avoidance: .seconds(3600))
        #expect(order.indices() == [0, 1, 2, 3])
        order.wasNotReached(0)
        order.wasNotReached(2)
        #expect(order.indices() == [1, 3, 0, 2])
        order.wasReached(0)
        #expect(order.indices() == [0, 1, 3, 2])
        for index in 0..<4 { order.wasNotReached(index) }
        #expect(order.indices() == [0, 1, 2, 3])
    }

    @Test("after a target's penalty, only one attempt tries it in its place")
    func due() throws {
        let order = TargetOrder(count: 3, avoidance: .seconds(2))
        order.wasNotReached(0)
        #expect(order.indices() == [1, 2, 0])
        try eventually("target 0 is due") { order.indices() == [0, 1, 2] }
        #expect(order.indices() == [1, 2, 0])
        order.wasReached(0)
        #expect(order.indices() == [0, 1, 2])
    }
}
