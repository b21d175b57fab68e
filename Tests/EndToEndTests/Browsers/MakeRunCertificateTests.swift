// The certificate of `make run`, for developers' browsers to trust.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("The certificate of make run", .serialized)
struct MakeRunCertificateTests {
    private static func openssl(_ arguments: String...) throws -> Command {
        try Command(Command.find("openssl") ?? "openssl", arguments)
    }

    @Test(
        "is issued by an authority for this machine's names only, and the authority's key is not kept"
    )
    func authority() throws {
        let run = try MakeRun()
        let folder = run.clone.appending(path: ".run/tls")
        func path(_ name: String) -> String {
            folder.appending(path: name).path(percentEncoded: false)
        }
        let verified = try Self.openssl(
            "verify",
            "-x509_strict",
            "-purpose",
            "sslserver",
            "-verify_hostname",
            "localhost",
            "-CAfile",
            path("authority.pem"),
            path("certificate.pem")
        )
        #expect(verified.status == 0, "\(verified.output)\(verified.errors)")
        let leaf = try Self.openssl("x509", "-noout", "-text", "-in", path("certificate.pem"))
            .output
        #expect(leaf.contains("CA:FALSE") && !leaf.contains("CA:TRUE"))
        let authority = try Self.openssl("x509", "-noout", "-text", "-in", path("authority.pem"))
            .output
        #expect(authority.contains("CA:TRUE") && authority.contains("Permitted:"))
        #expect(
            try FileManager.default.contentsOfDirectory(atPath: folder.path(percentEncoded: false))
                .sorted()
                == ["authority.pem", "certificate.pem", "key.pem"]
        )
        let response = try Command(
            Command.find("curl") ?? "curl",
            [
                "-sS", "--cacert", path("certificate.pem"), "-o", "/dev/null", "-w", "%{http_code}",
                "https://localhost:\(run.tlsPort)/upload/",
            ]
        )
        #expect(response.output == "200", "\(response.errors)")
    }

    @Test(
        "is trusted by Firefox once the authority is imported",
        .enabled(if: Engine.firefox.isInstalled, Engine.firefox.missing)
    )
    func firefox() throws {
        let run = try MakeRun()
        let authority = try String(
            contentsOf: run.clone.appending(path: ".run/tls/authority.pem"),
            encoding: .utf8
        )
        var setup = Browser.Setup()
        setup.acceptsAnyCertificate = false
        let browser = try Browser(.firefox, setup)
        let page = "https://localhost:\(run.tlsPort)/upload/"
        #expect(throws: WireClient.Broken.self) { try browser.open(page) }
        try browser.trust(authority)
        try browser.open(page)
        #expect(try browser.text("return document.querySelector('#pick').type") == "file")
    }
}
