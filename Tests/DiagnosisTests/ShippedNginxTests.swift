// The shipped nginx files, as README and the pages in docs change them: no mistake in them, and each mistake found.

import Foundation
@testable import SpoolgateDiagnosis
@testable import SpoolgatePosix
import SpoolgateUpstream
import Testing

@Suite struct ShippedNginxTests {
    /// The installed path of each file, by its path in this repository.
    private static let files = [
        ("nginx.conf", "/etc/nginx/nginx.conf"),
        ("http.conf", "/etc/nginx/conf.d/spoolgate.conf"),
        ("snippets/spoolgate.conf", "/etc/nginx/snippets/spoolgate.conf"),
        ("location.conf", "/usr/share/spoolgate/nginx/location.conf"),
        ("params.conf", "/usr/share/spoolgate/nginx/params.conf"),
        ("pass.conf", "/usr/share/spoolgate/nginx/pass.conf"),
        ("server.conf", "/usr/share/spoolgate/nginx/server.conf"),
        ("admin.conf", "/usr/share/spoolgate/nginx/admin.conf"),
        ("module/load.conf", "/usr/share/spoolgate/nginx/modules/load/load.conf"),
        ("module/interim.conf", "/usr/share/spoolgate/nginx/modules/interim.conf"),
    ]

    /// The shipped files as `nginx -T` prints them, with these lines replaced.
    private static func dump(_ changes: [(String, String)]) throws -> NginxDump {
        let nginx = URL(filePath: #filePath).deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent().appending(path: "nginx")
        var text = try files.map { path, place in
            let content = try String(contentsOf: nginx.appending(path: path), encoding: .utf8)
            return "# configuration file \(place):\n\(content)\n"
        }.joined()
        for (old, new) in changes {
            #expect(text.contains(old), "no shipped file has \(old)")
            text.replace(old, with: new)
        }
        return NginxDump(text)
    }

    private static func place(_ changes: (String, String)...) throws -> NginxPlace {
        let dump = try dump(changes)
        return try #require(dump.gateway(of: "/files/", host: "localhost", port: 8443))
    }

    private static let realm = ("#auth_basic           ", "auth_basic ")
    private static let file = ("#auth_basic_user_file ", "auth_basic_user_file ")
    private static let owner = (
        "#fastcgi_param        SPOOLGATE_OWNER $remote_user",
        "fastcgi_param SPOOLGATE_OWNER $remote_user"
    )
    private static let snippet = "/etc/nginx/snippets/spoolgate.conf"
    private static let shared = "/usr/share/spoolgate/nginx/location.conf"

    // MARK: The location

    @Test("the shipped location is found, with its socket, its module and no mistake")
    func shipped() throws {
        let place = try Self.place()
        #expect(place.faults.isEmpty, "\(place.faults)")
        #expect(place.found.text.hasPrefix("location ^~ /files/, \(Self.snippet):"))
        #expect(place.socket == "/run/spoolgate/spoolgate.sock" && place.route == "default")
        #expect(place.leads(to: .unix(path: "/run/spoolgate/spoolgate.sock", mode: 0, group: nil)))
        #expect(!place.leads(to: .unix(path: "/other.sock", mode: 0, group: nil)))
        #expect(NginxLogin(at: place).finding(workers: []) == nil)
        let lane = place.lane
        #expect(lane.directive?.text == "spool_receive on;")
        #expect(lane.hasModule && lane.passesFiles && !lane.isBuffering)
    }

    @Test("without the line in the server block no location passes uploads")
    func notIncluded() throws {
        let dump = try Self.dump([("include snippets/spoolgate*.conf;", "")])
        #expect(dump.gateways.isEmpty)
        #expect(dump.gateway(of: "/files/", host: "localhost", port: 8443) == nil)
        let shipped = try Self.dump([])
        #expect(shipped.gateway(of: "/photos/", host: "localhost", port: 8443) == nil)
        // Behind a proxy that ends TLS, no server block has the port.
        #expect(shipped.gateway(of: "/files/", host: "uploads.example", port: 443) != nil)
    }

    @Test("the operator's location is no gateway, and serves one socket")
    func admin() throws {
        let socket = "/run/spoolgate/admin.sock"
        #expect(try !Self.dump([]).servesAdmin(at: socket))
        let line = "include /usr/share/spoolgate/nginx/admin*.conf;"
        let dump = try Self.dump([("#\(line)", line)])
        #expect(dump.servesAdmin(at: socket) && !dump.servesAdmin(at: "/other.sock"))
        #expect(dump.gateways.count == 1)
    }

    @Test(
        "a directive that breaks uploads is reported with its place and its fix",
        arguments: [
            (
                "fastcgi_request_buffering off;", "fastcgi_request_buffering on;", "fail",
                "'fastcgi_request_buffering on;' at \(shared):",
                "nginx buffers uploads, and interrupted ones start again", Fix.buffering
            ),
            (
                "server_tokens off;", "server_tokens off; client_body_early_read 1;", "fail",
                "'client_body_early_read 1;' at /etc/nginx/nginx.conf:",
                "nginx buffers content before it chooses the location", Fix.lateContent
            ),
            (
                "client_max_body_size 0;", "client_max_body_size 8m;", "fail",
                "'client_max_body_size 8m;' at \(shared):", "nginx refuses larger content", Fix.size
            ),
            (
                "client_max_body_size 0;", "", "fail",
                "nginx's default 'client_max_body_size 1m;' applies at \(snippet):",
                "nginx refuses larger content", Fix.size
            ),
            (
                "client_body_buffer_size 1m;", "client_body_buffer_size 64k;", "warn",
                "'client_body_buffer_size 64k;' at \(shared):", "uploads over HTTP/2 are slow",
                Fix.window
            ),
            (
                "include /usr/share/spoolgate/nginx/params*.conf;", "", "fail",
                "the location at \(snippet):", "passes no FastCGI parameters", Fix.location
            ),
        ]
    )
    func mistake(
        old: String,
        new: String,
        level: String,
        start: String,
        end: String,
        fix: String
    ) throws {
        let faults = try Self.place((old, new)).faults
        #expect(faults.count == 1, "\(faults)")
        let found = try #require(faults.first)
        #expect(found.level.rawValue == level && found.fixes == [fix])
        #expect(found.text.hasPrefix(start) && found.text.hasSuffix(end), "\(found.text)")
    }

    @Test(
        "every spelling that nginx accepts is accepted",
        arguments: [
            ("fastcgi_request_buffering off;", "fastcgi_request_buffering OFF;"),
            ("client_max_body_size 0;", "client_max_body_size 0m;"),
            ("client_body_buffer_size 1m;", "client_body_buffer_size 1024K;"),
            ("server_tokens off;", "client_body_early_read \"\" 0;"),
            ("server_tokens off;", "client_body_early_read $json;"),
        ]
    )
    func spelt(old: String, new: String) throws {
        #expect(try Self.place((old, new)).faults.isEmpty)
    }

    @Test("why nginx does not write into the spool is read from its files")
    func lane() throws {
        let buffers = ("fastcgi_request_buffering off;", "")
        #expect(try Self.place(buffers).lane.isBuffering)
        let tcp = ("include /usr/share/spoolgate/nginx/pass*.conf;", "fastcgi_pass 10.0.0.1:9000;")
        #expect(try !Self.place(tcp).lane.passesFiles)
        // As spoolgate_nodes.conf says.
        let node = (tcp.0, "fastcgi_pass $spoolgate_node;")
        #expect(try Self.place(node).lane.passesFiles)
        let none = try Self.place(
            ("include /usr/share/spoolgate/nginx/modules/load/*.conf;", ""),
            ("include /usr/share/spoolgate/nginx/modules/*.conf;", "")
        )
        #expect(!none.lane.hasModule && none.lane.directive == nil && none.faults.isEmpty)
    }

    @Test(
        "an upstream that is this nginx is named with its location",
        arguments: [
            ("http://127.0.0.1:8080", true), ("http://localhost:8080/", true),
            ("https://[::1]:8443", true), ("http://127.0.0.1:3000", false),
            ("http://127.0.0.1:8080/app", false), ("http://192.0.2.1:8080", false),
            ("http://nowhere.invalid:8080", false),
        ]
    )
    func loop(upstream: String, isLoop: Bool) throws {
        let place = try Self.place()
        let found = place.loop(upstream, route: "default")
        #expect((found != nil) == isLoop)
        #expect(place.loop(upstream, route: "other") == nil)
        guard let found else { return }
        #expect(found.level == .failure && found.name == "upstream")
        #expect(found.text.contains("whose location ^~ /files/ at \(Self.snippet):"))
        #expect(found.text.hasSuffix("passes requests back to the gateway"))
    }

    @Test("a server block listens at its addresses only")
    func listens() throws {
        let cases: [(String, [String], Bool)] = [
            ("", ["127.0.0.1"], true), ("listen 80;", ["192.0.2.1"], true),
            ("listen 192.0.2.1:80;", ["127.0.0.1"], false),
            ("listen 192.0.2.1;", ["192.0.2.1"], true), ("listen *:80;", ["127.0.0.1"], true),
            ("listen [::1]:80;", ["::1"], true), ("listen 81; listen 80;", ["::1"], true),
            ("listen unix:/a;", ["127.0.0.1"], false), ("listen 81;", ["127.0.0.1"], false),
        ]
        for (text, addresses, isRight) in cases {
            var reader = NginxReader("server { \(text) }", file: "/n")
            let server = try #require(reader.directives().first)
            #expect(server.listens(on: 80, at: addresses) == isRight, "\(text)")
        }
    }

    // MARK: The login

    private static let worker = Credentials(user: 33, groups: [33], group: 33)

    private static func login(_ changes: (String, String)...) throws -> (NginxLogin, Finding?) {
        let dump = try dump(changes)
        var place = try #require(dump.gateways.first)
        place.passwords = nil
        let login = NginxLogin(at: place)
        return (login, login.finding(workers: [worker]))
    }

    @Test("all three lines of a login have no finding, and one without the others has")
    func lines() throws {
        #expect(try Self.login(Self.realm, Self.file, Self.owner).1 == nil)
        let alone = try #require(try Self.login(Self.owner).1)
        #expect(alone.level == .failure)
        #expect(alone.text.contains("accepts any name that a client claims"))
        #expect(
            alone.fixes.map { $0.prefix(20) } == ["auth_basic \"Uploads\"", "auth_basic_user_file"]
        )
        let unasked = try #require(try Self.login(Self.file, Self.owner).1)
        #expect(unasked.text.contains("(no auth_basic at \(Self.snippet):"))
        #expect(unasked.fixes == [Fix.login])
        let half = try #require(try Self.login(Self.realm, Self.owner).1)
        #expect(half.text.contains("has no auth_basic_user_file"))
        #expect(half.fixes == ["auth_basic_user_file /etc/nginx/uploads.htpasswd;"])
        let off = (Self.realm.0, "auth_basic off; #")
        let found = try #require(try Self.login(off, Self.file, Self.owner).1)
        #expect(found.text.contains("('auth_basic off;' at \(Self.snippet):"))
        #expect(found.fixes[0].contains("(in place of auth_basic off; at "))
        // Another module may verify the name as well.
        let ask = ("#auth_request         /", "auth_request /")
        #expect(try Self.login(ask, Self.owner).1 == nil)
    }

    @Test("a missing, unreadable or empty password file: nginx's response and the fix")
    func passwords() throws {
        func facts(_ path: String, _ group: UInt32, _ mode: UInt32) -> PathFacts {
            PathFacts(
                path: path,
                owner: 0,
                group: group,
                permissions: mode,
                isDirectory: mode == 0o755
            )
        }
        func file(_ group: UInt32, _ mode: UInt32, hasEntry: Bool? = true) -> PasswordFile {
            let path = "/etc/nginx/uploads.htpasswd"
            let way = [facts("/etc/nginx", 0, 0o755), facts(path, group, mode)]
            return PasswordFile(way: PathWay(path: path, facts: way), hasEntry: hasEntry)
        }
        let missing = PasswordFile(way: PathWay(to: "/nowhere/uploads.htpasswd"), hasEntry: nil)
        let cases: [(PasswordFile, [String])] = [
            (
                missing,
                ["(/nowhere is missing)", "403 to every login", "install -D -g ", "NAME:%s"]
            ),
            (file(0, 0o640), ["may not read /etc/nginx/uploads.htpasswd", "500", "chgrp "]),
            (file(33, 0o640, hasEntry: false), ["no login succeeds", "openssl passwd -apr1"]),
            (file(33, 0o640), []), (file(0, 0o644, hasEntry: nil), []),
        ]
        var place = try Self.place(Self.realm, Self.file, Self.owner)
        for (file, words) in cases {
            place.passwords = file
            let found = NginxLogin(at: place).finding(workers: [Self.worker])
            #expect(found?.level == (words.isEmpty ? nil : .failure), "\(words)")
            for word in words { #expect(found?.line.contains(word) == true, "\(word)") }
        }
        #expect(PasswordFile.hasEntry(in: "# a:b\n\nbob:\n:q\nalice:x\n"))
        #expect(!PasswordFile.hasEntry(in: "# a:b\n\nbob:\n:q\nalice\n"))
    }

    @Test("the password file's path is relative to nginx.conf, unless a variable names it")
    func passwordFile() throws {
        let shipped = "/etc/nginx/uploads.htpasswd;"
        func path(_ name: String) throws -> String? {
            let (login, _) = try Self.login(Self.realm, Self.file, (shipped, "\(name);"))
            return login.passwordFile(below: "/etc/nginx")
        }
        #expect(try path("uploads.htpasswd") == "/etc/nginx/uploads.htpasswd")
        #expect(try path("/srv/p") == "/srv/p")
        #expect(try path("/srv/$host") == nil)
    }

    @Test("a route that refuses clients without an owner needs the line that passes it")
    func refusal() throws {
        let found = try #require(try Self.login().0.findingOfRefusal(route: "default"))
        #expect(found.level == .failure && found.fixes == [Fix.owner])
        #expect(found.text.hasPrefix("location ^~ /files/ at \(Self.snippet):"))
        let right = try Self.login(Self.realm, Self.file, Self.owner).0
        #expect(right.findingOfRefusal(route: "default") == nil)
    }

    @Test("a password required for a preflight blocks pages of other origins")
    func preflight() throws {
        let login = try Self.login(Self.realm, Self.file, Self.owner).0
        let found = try #require(login.findingOfPreflight(route: "default"))
        #expect(found.level == .failure)
        #expect(found.text.contains("for the preflight of routes.default.cors"))
        #expect(found.fixes[0].hasPrefix("auth_basic $spoolgate_realm;   (in place of auth_basic"))
        let realm = ("#auth_basic           \"Uploads\"", "auth_basic $spoolgate_realm")
        let right = try Self.login(realm, Self.file, Self.owner).0
        #expect(right.findingOfPreflight(route: "default") == nil)
        #expect(try Self.login().0.findingOfPreflight(route: "default") == nil)
    }
}
