// An upload for a misconfigured https upstream waits, and is delivered once after the fix.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("Misconfigured https upstreams")
struct WrongTLSTests {
    enum Wrong: String, CaseIterable {
        case expired
        /// Signed by an untrusted authority.
        case strange
        /// Accepts connections and never starts TLS.
        case slow
    }

    // Long because each case waits for the pauses between the queue's attempts.
    @Test(
        "nothing is sent to it, and one delivery follows once it is right",
        arguments: Wrong.allCases
    )
    func waits(wrong: Wrong) throws {
        let right = try RealUpstream()
        let expired = try RealUpstream(isExpired: wrong == .expired)
        let silent = try LoopbackOrigin { $0.waitWithoutReading() }
        let (url, authority, reason) =
            switch wrong {
            case .expired: (expired.tlsURL, expired.authority, "expired")
            case .strange: (expired.tlsURL, right.authority, "certificate")
            case .slow: ("https://localhost:\(silent.port)", right.authority, "timeouts.connect")
            }
        let sandbox = try Sandbox(
            upstream: url,
            routeSettings: [
                "tls: {ca: \(authority)}", "reply: accepted",
                "timeouts: {connect: 1s}", "queue: {minimum-backoff: 1s, maximum-backoff: 1s}",
            ]
        )
        let content = Data(repeating: 5, count: 300_000)
        let response = try sandbox.ask(
            "POST",
            "/files/index.php",
            ["Upload-Complete: ?1"],
            content: content
        )
        #expect(response.status == 202)
        try eventually("deferred; log: \(sandbox.log.suffix(2_000))") {
            let lines = sandbox.log.components(separatedBy: "\n")
            return lines.contains { $0.contains("delivery deferred") && $0.contains(reason) }
        }
        #expect(try sandbox.spoolgate("list").output.contains("deferred"))
        #expect(try expired.phpCalls() == 0)
        if authority != right.authority {
            try sandbox.reload(replacing: authority, with: right.authority)
        }
        try sandbox.reload(replacing: url, with: right.tlsURL)
        try eventually("delivered; log: \(sandbox.log.suffix(2_000))") {
            try sandbox.spoolgate("list").output.contains("delivered")
        }
        #expect(try right.phpCalls() == 1)
        #expect(try expired.phpCalls() == 0)
    }
}
