// Whether an upstream leads back to the gateway, by nginx's files.

@testable import SpoolgateDiagnosis
import SpoolgatePosix
import SpoolgateUpstream
import Testing

@Suite struct LoopSeenTests {
    private static let gateway = ListenAddress.unix(path: "/g.sock", mode: 0o660, group: nil)

    private func files(_ servers: String) -> [NginxDump] {
        let location =
            "{ fastcgi_pass unix:/g.sock; fastcgi_param SPOOLGATE_INTERIM 104; "
        return [
            NginxDump(
                "# configuration file /n:\nhttp { "
                    + servers.replacing("G{", with: location)
                    .replacing("A{", with: "{ proxy_pass http://127.0.0.1:9; ") + " }\n"
            )
        ]
    }

    private func finding(
        _ target: UpstreamTarget,
        _ servers: String,
        _ address: ListenAddress = gateway,
        route: String = "default",
        service: String? = nil
    ) -> Finding? {
        LoopSeen(address, files(servers)).finding(target, "upstream", route, service: service)
    }

    private static let plain =
        "server { listen 80; server_name up.example; location /files/ G{} location / A{} } "

    @Test(
        "an upstream that is the nginx in front is named with its location",
        arguments: [
            ("http://127.0.0.1", plain), ("http://127.0.0.1:80", plain),
            ("http://localhost", plain), ("http://[::1]", plain),
            ("http://127.0.0.1", "server { server_name x; location ^~ /files/ G{} }"),
            ("http://127.0.0.1:8080", "server { listen 127.0.0.1:8080; location /files/ G{} }"),
            ("https://localhost", "server { listen 443 ssl; location /files/ G{} }"),
            (
                "http://127.0.0.1:81",
                plain + "server { listen 81; server_name up.example; location / G{} }"
            ),
            ("http://127.0.0.1/files", plain),
        ]
    )
    func found(base: String, servers: String) throws {
        let found = try #require(self.finding(.http(base: base), servers), "\(base), \(servers)")
        #expect(found.level == .failure)
        #expect(found.text.contains("passes requests back to the gateway"))
        #expect(found.text.contains("/n:1"))
    }

    @Test(
        "an application next to it is not taken for it",
        arguments: [
            ("http://127.0.0.1:3000", plain), ("http://127.0.0.1/app", plain),
            ("http://192.0.2.1", plain), ("http://nowhere.invalid", plain),
            ("http://127.0.0.1:80", "server { listen 192.0.2.1:80; location /files/ G{} }"),
            (
                "http://127.0.0.1:81",
                plain + "server { listen 81; server_name up.example; location / A{} }"
            ),
            // nginx chooses by the host name of the request.
            (
                "http://127.0.0.1:81",
                "server { listen 80; server_name a; location / G{} } "
                    + "server { listen 81; server_name b; location / G{ fastcgi_param SPOOLGATE_ROUTE b; } } "
                    + "server { listen 81; server_name a; location / A{} }"
            ),
            ("http://127.0.0.1", "server { listen 80; location / A{} }"),
        ]
    )
    func notFound(base: String, servers: String) {
        #expect(finding(.http(base: base), servers) == nil, "\(base), \(servers)")
    }

    @Test("the gateway's own socket is reported as the upstream")
    func ownSocket() {
        #expect(finding(.unix(path: "/g.sock"), "") != nil)
        #expect(finding(.unix(path: "/app.sock"), "") == nil)
        let tcp = ListenAddress.tcp("127.0.0.1:9000")
        #expect(finding(.http(base: "http://localhost:9000"), "", tcp) != nil)
        #expect(finding(.http(base: "http://localhost:9001"), "", tcp) == nil)
        #expect(finding(.http(base: "http://127.0.0.1:9000"), "", .tcp(":9000")) != nil)
        #expect(finding(.directory(path: "/d"), "") == nil)
    }

    @Test("a service is matched by its host and path")
    func service() {
        let base = UpstreamTarget.http(base: "http://127.0.0.1")
        #expect(finding(base, Self.plain, service: "/files/may") != nil)
        #expect(finding(base, Self.plain, service: "/may") == nil)
    }

    @Test("only an address of this machine matches it")
    func addresses() {
        #expect(LocalAddress.all(of: "127.0.0.1") == ["127.0.0.1"])
        #expect(LocalAddress.all(of: "192.0.2.1").isEmpty)
        #expect(LocalAddress.all(of: "nowhere.invalid").isEmpty)
    }
}
