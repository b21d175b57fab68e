// If an upstream authenticates connections (NTLM, Negotiate), a logged-in client's is never used for another client.

import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateUpstream

@Suite("Authentication of a connection")
struct ConnectionAuthenticationTests {
    /// Like IIS, attributes every request on a connection to the client that logged in; all responses have the fields
    /// `offer`.
    private func origin(_ offer: [String] = []) throws -> LoopbackOrigin {
        try LoopbackOrigin { connection in
            var user = "nobody"
            while let request = try connection.receiveRequest() {
                if let told = request.values("Authorization").first { user = told }
                try connection.response("200 OK", fields: offer, content: user)
            }
        }
    }

    private func user(_ upstream: Upstream, _ fields: HTTPFields = [:]) throws -> String {
        let sink = RecordingSink()
        let request = try UpstreamRequest("PUT", "/x", fields, content: .bytes([1]))
        #expect(upstream.attempt(request, sink: sink) == .responded)
        return sink.text
    }

    @Test(
        "credentials of a connection serve only the request that has them",
        arguments: [
            "NTLM TlRMTVNTUAAB", "Negotiate YII=", "negotiate YII=", "nTlM x", "Kerberos x",
            "Negotiate", "Nego2 x",
        ]
    )
    func request(credentials: String) throws {
        let origin = try origin()
        let upstream = try upstream(origin.base)
        #expect(try user(upstream) == "nobody")
        for _ in 0..<3 {
            #expect(try user(upstream, [.authorization: credentials]) == credentials)
            #expect(try user(upstream) == "nobody", "a connection was reused")
        }
    }

    @Test(
        "a connection with such a login, offered or confirmed, is not used again",
        arguments: [
            "WWW-Authenticate: Negotiate", "www-authenticate: NTLM",
            "WWW-Authenticate: Basic realm=\"a, b\", Negotiate",
            "WWW-Authenticate: Digest realm=x, nonce=\"y\" , NTLM TlRM",
            "Proxy-Authenticate: Negotiate", "Persistent-Auth: true",
            "WWW-Authenticate: Negotiate oRQwEqADCgEB",
        ]
    )
    func response(offer: String) throws {
        let origin = try origin([offer])
        let upstream = try upstream(origin.base)
        for _ in 0..<3 { _ = try user(upstream) }
        #expect(origin.connectionCount == 3)
    }

    @Test(
        "other credentials keep the connection",
        arguments: [
            "Basic bnRsbTpuZWdvdGlhdGU=", "Bearer Negotiate",
            "Digest username=\"NTLM\", realm=\"a, Negotiate b\", nonce=\"\\\", NTLM \"",
        ]
    )
    func others(credentials: String) throws {
        let origin = try origin(["WWW-Authenticate: Basic realm=\"NTLM, Negotiate\""])
        let upstream = try upstream(origin.base)
        for _ in 0..<3 { _ = try user(upstream, [.authorization: credentials]) }
        #expect(origin.connectionCount == 1)
    }
}
