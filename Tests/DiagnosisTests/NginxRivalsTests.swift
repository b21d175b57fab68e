// Locations that match names below the gateway's: the diagnosis compared with nginx.

import Foundation
@testable import SpoolgateDiagnosis
import SpoolgateTestSupport
import Testing

@Suite struct NginxRivalsTests {
    struct Case: Sendable, CustomTestStringConvertible {
        var testDescription: String
        /// `G{` begins the gateway's location; `R` is the content of others.
        var text: String
        /// The `samples` that other locations match.
        var taken: [String] = []
        /// A part of the fix.
        var fix = "location ^~ /files/ {   (in place of location "
    }

    static let samples = [
        "/files/x.php", "/files/x.jpg", "/files/x.jpeg", "/files/x.JPG", "/files/x.php/x",
        "/files/.x", "/files/x.zip", "/files/12345/x", "/files/private/x",
        "/files/a/upload-resource/0123456789abcdefghijklmnop",
    ]

    static let cases = [
        Case(
            testDescription: "scripts",
            text: #"location /files/ G{} location ~ \.php$ R"#,
            taken: ["/files/x.php"]
        ),
        Case(
            testDescription: "scripts, before the gateway's",
            text: #"location ~ \.php$ R location /files/ G{}"#,
            taken: ["/files/x.php"]
        ),
        Case(
            testDescription: "scripts with a path behind, as Debian has them",
            text: #"location /files/ G{} location ~ [^/]\.php(/|$) R"#,
            taken: ["/files/x.php", "/files/x.php/x"]
        ),
        Case(
            testDescription: "images, in any case",
            text: #"location /files/ G{} location ~* \.(jpe?g|png)$ R"#,
            taken: ["/files/x.jpg", "/files/x.jpeg", "/files/x.JPG"]
        ),
        Case(
            testDescription: "without a space, and in quotes",
            text: #"location /files/ G{} location ~*\.jpg$ R location ~ "\.(php|phtml)$" R"#,
            taken: ["/files/x.php", "/files/x.jpg", "/files/x.JPG"]
        ),
        Case(
            testDescription: "hidden files",
            text: #"location /files/ G{} location ~ /\.(?!well-known) R"#,
            taken: ["/files/.x"]
        ),
        Case(
            testDescription: "a part of the directory",
            text: #"location /files/ G{} location ~ ^/files/private/ R"#,
            taken: ["/files/private/x"]
        ),
        Case(
            testDescription: "one of several directories",
            text: #"location /files/ G{} location ~ ^/(files|photos)/.*\.zip$ R"#,
            taken: ["/files/x.zip"]
        ),
        Case(
            testDescription: "digits",
            text: #"location /files/ G{} location ~ "^/files/\d{5}/" R"#,
            taken: ["/files/12345/x"]
        ),
        Case(
            testDescription: "the resources of uploads",
            text: "location /files/ G{} location ~ /upload-resource/ R",
            taken: ["/files/a/upload-resource/0123456789abcdefghijklmnop"]
        ),
        Case(
            testDescription: "an expression around",
            text: #"location / { location /files/ G{} } location ~ \.php$ R"#,
            taken: ["/files/x.php"],
            fix: "location ^~ /files/ {   (in the server block itself"
        ),
        Case(
            testDescription: "an expression around one that is put first among its own",
            text: #"location / { location ^~ /files/ G{} } location ~ \.php$ R"#,
            taken: ["/files/x.php"],
            fix: "location ^~ /files/ {   (in the server block itself"
        ),
        Case(
            testDescription: "an expression inside",
            text: #"location ^~ /files/ G{ location ~ \.php$ R }"#,
            taken: ["/files/x.php"],
            fix: "move it out of location ^~ /files/"
        ),
        Case(
            testDescription: "the gateway's is an expression, and not the first one",
            text: #"location ~ \.php$ R location ~ ^/files/ G{}"#,
            taken: ["/files/x.php"]
        ),
        Case(testDescription: "^~", text: #"location ^~ /files/ G{} location ~ \.php$ R"#),
        Case(
            testDescription: "^~ without a space",
            text: #"location ^~/files/ G{} location ~ \.php$ R"#
        ),
        Case(
            testDescription: "^~ around",
            text: #"location ^~ / { location /files/ G{} } location ~ \.php$ R"#
        ),
        Case(
            testDescription: "the gateway's is the first expression",
            text: #"location ~ ^/files/ G{} location ~ \.php$ R"#
        ),
        Case(
            testDescription: "others' directories",
            text: #"location /files/ G{} location ~ ^/admin/.*\.php$ R location ~* ^/photos/ R"#
        ),
        Case(
            testDescription: "all but the directory",
            text: #"location /files/ G{} location ~ ^(?!/files/).+\.php$ R"#
        ),
        Case(
            testDescription: "exact ones, and ones by name",
            text: "location /files/ G{} location = /files/other R location @spoolgate_gone R"
        ),
        Case(
            testDescription: "one that hands on to the gateway as well",
            text: #"location /files/ G{} location ~ ^/files/x\.zip$ G{}"#
        ),
    ]

    private static func body(_ text: String) -> String {
        text.replacing(
            "G{",
            with: "{ fastcgi_param SPOOLGATE_ROUTE a; fastcgi_pass unix:/nowhere.sock; "
        )
        .replacing(/R(?= |$)/, with: "{ return 204; }")
    }

    @Test("the locations that intercept names are found, and no others", arguments: cases)
    func found(item: Case) throws {
        let dump = NginxDump(
            "# configuration file /n:\nhttp { server { \(Self.body(item.text)) } }\n"
        )
        let places = dump.gateways
        let rivals = places.flatMap(\.rivals)
        #expect(rivals.isEmpty == item.taken.isEmpty, "\(rivals)")
        let fixes = places.flatMap(\.rivalFaults).flatMap(\.fixes)
        #expect(fixes.allSatisfy { $0.contains(item.fix) }, "\(fixes)")
    }

    @Test(
        "nginx chooses them in the same way",
        .enabled(if: FileManager.default.isExecutableFile(atPath: "/usr/sbin/nginx"), "no nginx")
    )
    func real() throws {
        let folder = FileManager.default.temporaryDirectory
            .appending(path: "rivals-\(UUID().uuidString.prefix(8))")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let port = try FreePort.take(1)[0]
        let servers = Self.cases.enumerated().map { index, item in
            "server { listen 127.0.0.1:\(port); server_name c\(index); \(Self.body(item.text)) }\n"
        }
        let temporary = ["client_body", "fastcgi", "proxy", "scgi", "uwsgi"]
            .map { "\($0)_temp_path t_\($0); " }
        let path = folder.path()
        try """
        \(geteuid() == 0 ? "user root;" : "")
        pid nginx.pid; error_log error.log crit; daemon off;
        events {}
        http { access_log off; \(temporary.joined()) \(servers.joined()) }
        """.write(toFile: path + "/nginx.conf", atomically: true, encoding: .utf8)
        let nginx = Process()
        nginx.executableURL = URL(filePath: "/usr/sbin/nginx")
        nginx.arguments = ["-p", path, "-e", "error.log", "-c", path + "/nginx.conf"]
        try nginx.run()
        defer {
            nginx.terminate()
            nginx.waitUntilExit()
        }
        try eventually("nginx listens") { (try? WireClient(port: port)) != nil }
        for (index, item) in Self.cases.enumerated() {
            // nginx responds with 502 for the gateway, which does not run.
            let taken = try Self.samples.filter { sample in
                let client = try WireClient(port: port)
                _ = client.send(
                    "GET \(sample) HTTP/1.1\r\nHost: c\(index)\r\nConnection: close\r\n\r\n"
                )
                return try client.readAny().status != 502
            }
            #expect(taken == item.taken, "\(item.text)")
            // A reported example must be one.
            let dump = NginxDump("# configuration file /n:\nhttp { \(servers[index]) }\n")
            for path in dump.gateways.flatMap(\.rivals).compactMap(\.path) {
                let client = try WireClient(port: port)
                _ = client.send(
                    "GET \(path) HTTP/1.1\r\nHost: c\(index)\r\nConnection: close\r\n\r\n"
                )
                #expect(try client.readAny().status == 204, "\(path) in \(item.text)")
            }
        }
    }
}
