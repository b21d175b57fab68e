import Foundation
import HTTPTypes
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateUpstream

@Suite("TLS", .enabled(if: OpenSSLCommand.isThere, "needs the openssl command"))
struct TLSTests {
    @Test("a certificate of the right authority and name is accepted, an old TLS is not")
    func rightAuthority() throws {
        let authority = try TestAuthority()
        let server = try OpenSSLCommand(serving: authority.identity("localhost"))
        let upstream = try upstream(server.base, authority: authority.certificate)
        let sink = RecordingSink()
        #expect(try upstream.attempt("GET", "/", sink: sink) == .responded)
        #expect(sink.head?.status.code == 200)
        // The server receives the name by SNI and speaks HTTP/1.0, so the response ends with the connection.
        #expect(sink.text.contains("s_server"))

        let old = try OpenSSLCommand(
            serving: authority.identity("localhost"),
            more: ["-www", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]
        )
        let outcome = try UpstreamTests.upstream(
            old.base,
            authority: authority.certificate
        ).attempt("GET", "/")
        #expect(outcome.isNotReached && !outcome.timedOut)
        #expect(outcome.reason.contains("TLS handshake with host localhost failed"), "\(outcome)")
    }

    @Test("a request that needs a new connection resumes the TLS session of an earlier one")
    func resumption() throws {
        let authority = try TestAuthority()
        let server = try OpenSSLCommand(serving: authority.identity("localhost"))
        let upstream = try upstream(server.base, authority: authority.certificate)
        var request = try UpstreamRequest("GET", "/")
        request.needsNewConnection = true
        for words in ["New, TLSv1.3", "Reused, TLSv1.3", "Reused, TLSv1.3"] {
            let sink = RecordingSink()
            #expect(upstream.attempt(request, sink: sink) == .responded)
            #expect(sink.text.contains(words), "\(sink.text.prefix(2_000))")
        }
    }

    @Test("an expired certificate: not reached, and the reason says so")
    func expired() throws {
        let authority = try TestAuthority()
        let server = try OpenSSLCommand(serving: authority.identity("localhost", isExpired: true))
        let outcome = try upstream(server.base, authority: authority.certificate)
            .attempt("POST", content: .bytes([1]))
        #expect(outcome.isNotReached && !outcome.timedOut)
        #expect(outcome.reason.contains("certificate of host localhost could not be verified"))
        #expect(outcome.reason.contains("expired"), "\(outcome)")
    }

    /// TLS 1.2 refuses a missing client certificate in the handshake; with TLS 1.3 the client has sent its request by
    /// then (RFC 8446 figure 1), and libcurl reports nothing that proves that it was not read.
    @Test(
        "a required client certificate that is missing: TLS 1.2 is not reached, 1.3 may have been",
        arguments: [
            ("-tls1_2", Int64(10)), ("-tls1_2", 3_000_000), ("-tls1_3", 10), ("-tls1_3", 3_000_000),
        ]
    )
    func clientCertificate(version: String, length: Int64) throws {
        let authority = try TestAuthority()
        let server = try OpenSSLCommand(
            serving: authority.identity("localhost"),
            more: [
                "-quiet", version, "-Verify", "1", "-verify_return_error", "-CAfile",
                authority.certificate,
            ]
        )
        let served = server.respondOnce(contentLength: 0, "HTTP/1.1 200 OK\r\n\r\n")
        for _ in 0..<5 {
            let outcome = try upstream(server.base, authority: authority.certificate).attempt(
                "POST",
                content: pattern(length)
            )
            if version == "-tls1_2" {
                #expect(outcome.isNotReached, "\(outcome)")
            } else {
                #expect(outcome.isIndeterminate, "\(outcome)")
                #expect(outcome.reason.contains("client certificate"), "\(outcome)")
            }
            #expect(!outcome.timedOut)
        }
        #expect(served.content == nil)
    }

    @Test("an unknown authority: not reached, and the reason names host, file and fault")
    func wrongAuthority() throws {
        let authority = try TestAuthority()
        let other = try TestAuthority()
        let server = try OpenSSLCommand(serving: authority.identity("localhost"))
        let request = try UpstreamRequest("POST", content: .bytes([1]))
        let outcome = try upstream(server.base, authority: other.certificate)
            .attempt(request, sink: RecordingSink())
        #expect(outcome.isNotReached)
        #expect(outcome.reason.contains("certificate of host localhost could not be verified"))
        #expect(outcome.reason.contains(other.certificate))
        #expect(outcome.reason.contains("certificate problem"), "\(outcome)")

        let system = try upstream(server.base).attempt(request, sink: RecordingSink())
        #expect(system.isNotReached)
        #expect(system.reason.contains("the system's certificate authorities"), "\(system)")
    }

    @Test("a certificate for another name: not reached")
    func wrongName() throws {
        let authority = try TestAuthority()
        let server = try OpenSSLCommand(serving: authority.identity("other.example"))
        let outcome = try upstream(server.base, authority: authority.certificate).attempt("GET")
        #expect(outcome.isNotReached)
        #expect(outcome.reason.contains("certificate of host localhost could not be verified"))
        #expect(outcome.reason.contains("'localhost'"), "\(outcome)")
    }

    @Test("missing files are named", arguments: [true, false])
    func missingFiles(isAuthority: Bool) throws {
        let authority = try TestAuthority()
        let server = try OpenSSLCommand(serving: authority.identity("localhost"))
        let outcome = try upstream(
            server.base,
            authority: isAuthority ? "/none/ca.pem" : authority.certificate,
            certificate: isAuthority ? nil : "/none/client.pem"
        ).attempt("GET")
        #expect(outcome.isNotReached)
        #expect(
            outcome.reason.contains(isAuthority ? "/none/ca.pem" : "/none/client.pem"),
            "\(outcome)"
        )
    }

    @Test("content and a client certificate work over TLS", arguments: [Int64(20_000), 700_000])
    func contentOverTLS(length: Int64) throws {
        let authority = try TestAuthority()
        let server = try OpenSSLCommand(
            serving: authority.identity("localhost"),
            more: [
                "-quiet", "-Verify", "1", "-verify_return_error", "-CAfile", authority.certificate,
            ]
        )
        let served = server.respondOnce(
            contentLength: Int(length),
            "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok"
        )
        let sink = RecordingSink()
        let outcome = try upstream(
            server.base,
            authority: authority.certificate,
            certificate: try authority.identity("client")
        ).attempt("POST", content: pattern(length), sink: sink)
        #expect(outcome == .responded, "\(outcome)")
        #expect(sink.text == "ok")
        let content = try eventually("the origin has read it") { served.content }
        #expect(content.count == Int(length))
        #expect(isPattern(content))
    }
}
