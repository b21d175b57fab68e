// Each kind of unreachable upstream has its own fix, which names the setting.

@testable import SpoolgateCurl
@testable import SpoolgateDiagnosis
import Testing

@Suite struct UpstreamSeenTests {
    private static func seen(
        _ fault: ClientFault?,
        check: String = "upstream",
        target: String = "https://app.example:8443/base",
        authorities: String? = nil
    ) -> UpstreamEvidence {
        var seen = UpstreamEvidence(check: check, name: "photos", target: target)
        (seen.fault, seen.authorities) = (fault, authorities)
        return seen
    }

    private static func tls(_ trouble: TLSProblem) -> ClientFault {
        var fault = ClientFault(.noTLS, "words of OpenSSL")
        fault.tls = trouble
        return fault
    }

    private static let words: [TLSProblem: [String]] = [
        .expired: ["renew the certificate of app.example:8443", "-noout -dates"],
        .notYetValid: ["clock"],
        .authority: ["routes.photos.tls.ca: a PEM file", "self-signed"],
        .name: ["routes.photos.upstream", "one of the names in the certificate", "subjectAltName"],
        .distrust: ["openssl s_client -connect app.example:8443"],
        .authoritiesFile: ["routes.photos.tls.ca"],
        .clientCertificate: ["routes.photos.tls.certificate and routes.photos.tls.key"],
        .notTLS: [
            "routes.photos.upstream: http://app.example:8443/base  (this port does not speak TLS)"
        ],
        .silence: ["http://app.example:8443/base  (if this port speaks plain HTTP)"],
        .ended: ["http://app.example:8443/base  (if this port speaks plain HTTP)"],
        .handshake: ["openssl s_client", "TLS 1.2", "routes.photos.tls.certificate"],
    ]

    @Test(
        "each TLS failure has its own advice, which never says to start a running program",
        arguments: TLSProblem.allCases
    )
    func troubles(trouble: TLSProblem) throws {
        let finding = Self.seen(Self.tls(trouble)).finding
        #expect(finding.level == .failure)
        #expect(finding.text == "photos: https://app.example:8443/base: words of OpenSSL")
        let fixes = finding.fixes.joined(separator: "\n")
        for word in try #require(Self.words[trouble]) { #expect(fixes.contains(word), "\(fixes)") }
        #expect(!fixes.contains("start the server at"))
    }

    @Test(
        "an authorizer and the webhook have their own settings, and their file of authorities is named"
    )
    func settings() {
        func fixes(_ check: String, _ authorities: String? = nil) -> String {
            Self.seen(Self.tls(.authority), check: check, authorities: authorities).finding.fixes[0]
        }
        #expect(fixes("authorizer").contains("routes.photos.authorize.tls.ca"))
        #expect(fixes("webhook").contains("events.webhook.tls.ca"))
        #expect(fixes("upstream", "/etc/ca.pem").contains("to /etc/ca.pem (routes.photos.tls.ca)"))
    }

    @Test("a port that speaks TLS although the setting says http")
    func speaksTLS() {
        var seen = Self.seen(nil, target: "http://app.example/base")
        #expect(
            seen.finding == .ok("upstream", "photos: http://app.example/base accepts connections")
        )
        seen.speaksTLS = true
        #expect(seen.finding.level == .failure)
        #expect(
            seen.finding.fixes == [
                "routes.photos.upstream: https://app.example:80/base  (in place of http://app.example/base)"
            ]
        )
    }

    @Test("an unknown host, a refused connection and a missing response have separate advice")
    func unreached() {
        #expect(
            Self.seen(ClientFault(.noAddress, "x")).finding.fixes[0].hasPrefix(
                "getent hosts app.example"
            )
        )
        #expect(
            Self.seen(ClientFault(.noConnection, "x")).finding.fixes[0].hasPrefix(
                "start the server at app.example:8443"
            )
        )
        var late = ClientFault(.noConnection, "x")
        late.isLate = true
        #expect(Self.seen(late).finding.fixes[0].contains("firewalls on the way to app.example"))
    }

    @Test("a socket is named by its path only")
    func socket() {
        var seen = Self.seen(
            ClientFault(.noConnection, "connect unix:/run/app.sock: No such file or directory"),
            target: "unix:/run/app.sock"
        )
        seen.socket = "/run/app.sock"
        #expect(
            seen.finding.text == "photos: connect unix:/run/app.sock: No such file or directory"
        )
        #expect(seen.finding.fixes[0].contains("listens on /run/app.sock"))
    }

    @Test(
        "OpenSSL's and libcurl's messages for a handshake",
        arguments: [
            ("error:0A00010B:SSL routines::wrong version number", TLSProblem.notTLS),
            ("error:0A0000C6:SSL routines::packet length too long", .notTLS),
            ("OpenSSL SSL_connect: SSL_ERROR_SYSCALL in connection to a:1", .ended),
            ("Recv failure: Connection reset by peer", .ended),
            ("error:0A000126:SSL routines::unexpected eof while reading", .ended),
            ("error:0A000410:SSL routines::sslv3 alert handshake failure", .handshake),
        ]
    )
    func handshakes(text: String, trouble: TLSProblem) {
        #expect(TLSProblem(handshake: text) == trouble)
    }

    @Test(
        "OpenSSL's verification codes, and libcurl's message for a host name",
        arguments: [
            (10, "", TLSProblem.expired), (9, "", .notYetValid), (18, "", .authority),
            (19, "", .authority), (20, "", .authority), (23, "", .distrust),
            (1, "SSL: no alternative certificate subject name matches target host name 'a'", .name),
        ]
    )
    func verifications(number: Int, text: String, trouble: TLSProblem) {
        #expect(TLSProblem(verification: number, text) == trouble)
    }
}
