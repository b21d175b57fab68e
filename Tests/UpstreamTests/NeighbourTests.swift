// An upstream that fails between attempts or during one: the next attempt after its recovery succeeds, and the failed
// outcome says correctly which data the upstream may have received.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateUpstream

@Suite("A failing upstream")
struct NeighbourTests {
    /// A failing relay before an origin that responds with 201.
    private struct Place {
        let origin: LoopbackOrigin
        let authority: TestAuthority?
        let tls: TLSServer?
        let neighbour: BadNeighbour
        let upstream: Upstream

        init(isSecure: Bool) throws {
            origin = try LoopbackOrigin(status: "201 Created")
            if isSecure {
                let authority = try TestAuthority()
                let identity = try authority.identity("*\(TestNames.suffix)")
                let tls = try TLSServer(identity, before: origin.port)
                (self.authority, self.tls) = (authority, tls)
                neighbour = try BadNeighbour(before: tls.port)
            } else {
                (authority, tls) = (nil, nil)
                neighbour = try BadNeighbour(before: origin.port)
            }
            upstream = try UpstreamTests.upstream(
                isSecure ? neighbour.secureBase : neighbour.base,
                connect: .seconds(2),
                stall: .seconds(2),
                response: .seconds(1),
                authority: authority?.certificate
            )
        }
    }

    // Long because some failures end only by a deadline, twice each.
    @Test(
        "after any failure the next attempt succeeds, however often it happened",
        arguments: [false, true]
    )
    func betweenAttempts(isSecure: Bool) throws {
        if isSecure, !(OpenSSLCommand.isThere && TLSServer.isThere) { return }
        let place = try Place(isSecure: isSecure)
        func succeeds(_ after: String) throws {
            for (method, content) in [
                ("POST", UpstreamContent.bytes([1])), ("PUT", pattern(200_000)), ("GET", .none),
            ] {
                let outcome = try place.upstream.attempt(method, content: content)
                #expect(outcome == .responded, "after \(after): \(outcome)")
            }
        }
        try succeeds("nothing")
        for trouble in BadNeighbour.Trouble.failures {
            for round in 0..<2 {
                try place.neighbour.become(trouble)
                let before = place.origin.all.count
                let outcome = try place.upstream.attempt("POST", content: pattern(300_000))
                let sent = place.origin.all.count - before
                switch trouble {
                case .refuses: #expect(outcome.isNotReached, "\(trouble): \(outcome)")
                // libcurl caches the address for a minute.
                case .noName: #expect(outcome.isNotReached || outcome == .responded)
                // Closed at once or within the TLS handshake: no request was sent.
                case .closes(after: 0), .resets(after: 0):
                    #expect(outcome.isNotReached || outcome.isIndeterminate, "\(trouble)")
                default:
                    let isTrue = outcome.isIndeterminate || isSecure && outcome.isNotReached
                    #expect(isTrue, "\(trouble): \(outcome)")
                }
                if sent > 0, trouble != .noName {
                    #expect(outcome.isIndeterminate, "\(trouble): it was sent")
                }
                #expect(sent <= 1, "\(trouble): a POST is not sent again")
                try place.neighbour.become(nil)
                try succeeds("\(trouble), round \(round)")
            }
        }
    }

    @Test("a strange but complete response is passed on, and the next attempt is unaffected")
    func strangeAnswers() throws {
        let place = try Place(isSecure: false)
        for trouble in BadNeighbour.Trouble.answersOfItsOwn {
            guard case .responses(let status, _) = trouble else { continue }
            try place.neighbour.become(trouble)
            for _ in 0..<3 {
                let sink = RecordingSink()
                let outcome = try place.upstream.attempt("PUT", content: pattern(9), sink: sink)
                #expect(outcome == .responded, "\(trouble): \(outcome)")
                #expect(status.hasPrefix("\(sink.head?.status.code ?? 0)"))
            }
            try place.neighbour.become(nil)
            #expect(try place.upstream.attempt("PUT", content: pattern(9)) == .responded)
        }
    }

    @Test("many concurrent attempts during a failure leave nothing behind that fails later")
    func manyAtATime() throws {
        let place = try Place(isSecure: false)
        for trouble in BadNeighbour.Trouble.failures {
            try place.neighbour.become(trouble)
            // A new upstream, which has no connection and looks the name up again.
            let upstream = try UpstreamTests.upstream(
                place.neighbour.base,
                connect: .seconds(2),
                stall: .seconds(2),
                response: .seconds(1)
            )
            let outcomes = Parallel.run(8) { _ in
                try upstream.attempt("PUT", content: pattern(300_000))
            }
            #expect(try outcomes.allSatisfy { try $0.get() != .responded }, "\(trouble)")
            try place.neighbour.become(nil)
            for _ in 0..<16 {
                let outcome = try upstream.attempt("PUT", content: .bytes([1]))
                #expect(outcome == .responded, "after \(trouble): \(outcome)")
            }
        }
    }

    /// Like gunicorn's threads, the origin refuses content that it does not read, promises to keep the connection, and
    /// closes it at once, after a while, or on the next request.
    // Long because the race with a closing upstream needs many repeats.
    @Test(
        "content that the upstream refuses without reading it never affects another client's request",
        arguments: [false, true],
        [Close.atOnce, .later, .onNextRequest]
    )
    func refusedContent(isSecure: Bool, close: Close) throws {
        if isSecure, !(OpenSSLCommand.isThere && TLSServer.isThere) { return }
        let origin = try LoopbackOrigin { connection in
            while let request = try connection.receiveHead() {
                if request.target == "/refused" {
                    try connection.response("404 Not Found", fields: ["Connection: keep-alive"])
                    if close == .later { usleep(5_000) }
                    if close == .onNextRequest { _ = connection.receive() }
                    return connection.reset()
                }
                var whole = request
                try connection.receiveContent(of: &whole)
                try connection.response("201 Created")
            }
        }
        let authority = isSecure ? try TestAuthority() : nil
        let tls = try authority.map {
            try TLSServer(try $0.identity("localhost"), before: origin.port)
        }
        let upstream = try upstream(
            tls.map { "https://localhost:\($0.port)" } ?? origin.base,
            authority: authority?.certificate
        )
        for round in 0..<30 {
            // The origin may close the connection before the response is read.
            let refused = pattern([9, 70_000, 400_000][round % 3])
            _ = try upstream.attempt("POST", "/refused", content: refused)
            for (method, content) in [
                ("POST", pattern(9)), ("POST", pattern(300_000)), ("POST", .none),
                ("PUT", pattern(9)), ("PUT", pattern(300_000)), ("DELETE", .none), ("GET", .none),
                ("PUT", patternStream(9, piece: 9, saysLength: true)),
            ] as [(String, UpstreamContent)] {
                let sink = RecordingSink()
                let outcome = try upstream.attempt(method, content: content, sink: sink)
                #expect(outcome == .responded, "\(method) in round \(round): \(outcome)")
                #expect(sink.head?.status.code == 201)
                if method != "GET" {
                    _ = try upstream.attempt("POST", "/refused", content: refused)
                }
            }
        }
        withExtendedLifetime(tls) {}
    }

    enum Close { case atOnce, later, onNextRequest }

    @Test("a store whose name was unresolvable gets the next upload")
    func bucket() throws {
        let origin = try LoopbackOrigin()
        let neighbour = try BadNeighbour(before: origin.port)
        let scratch = try ScratchDirectory()
        let key = scratch.file("key")
        try Data("A\nB\n".utf8)
            .write(to: URL(fileURLWithPath: key))
        try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: key)
        var settings = UpstreamSettings(
            targets: [.bucket(BucketAddress(endpoint: neighbour.base, name: "b"))],
            connectTimeout: .seconds(2),
            stallTimeout: .seconds(2),
            responseTimeout: .seconds(1)
        )
        settings.bucket.credentials = .file(key)
        let upstream = Upstream(settings)
        #expect(try upstream.attempt("PUT", content: pattern(100)) == .responded)
        for trouble in BadNeighbour.Trouble.failures {
            try neighbour.become(trouble)
            let outcome = try upstream.attempt("PUT", content: pattern(100_000))
            #expect(outcome != .responded || trouble == .noName, "\(trouble)")
            try neighbour.become(nil)
            let next = try upstream.attempt("PUT", content: pattern(100_000))
            #expect(next == .responded, "after \(trouble): \(next)")
        }
    }
}
