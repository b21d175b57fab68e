// nginx's authentication and the owners it sets, and ports that speak only HTTP/2, by its files.

@testable import SpoolgateDiagnosis
@testable import SpoolgatePosix
import Testing

@Suite struct NginxLoginTests {
    private static let worker = Credentials(user: 33, groups: [33], group: 33)

    private static func dump(_ location: String, http: String = "", listen: String = "listen 80;")
        -> NginxDump
    {
        NginxDump(
            """
            # configuration file /etc/nginx/nginx.conf:
            http {
            \(http)
            server {
            \(listen)
            location ^~ /files/ {
            fastcgi_pass unix:/g.sock;
            fastcgi_param SPOOLGATE_ROUTE default;
            \(location)
            }
            }
            }
            """
        )
    }

    private static func findings(
        _ location: String,
        http: String = "",
        _ password: PasswordFile? = nil
    ) throws -> [Finding] {
        let place = try #require(dump(location, http: http).gateways.first)
        return NginxLogin(at: place).findings(password, workers: [worker])
    }

    private static let basic = "auth_basic \"Uploads\"; auth_basic_user_file uploads.htpasswd; "
    private static let owner = "fastcgi_param SPOOLGATE_OWNER $remote_user; "

    @Test(
        "a complete login and no login have no findings",
        arguments: [
            "", basic, basic + owner, basic + owner + "satisfy all; allow 10.0.0.0/8; deny all;",
            basic + "satisfy any; deny all;", "auth_basic off; auth_basic_user_file x;",
            "auth_request /ask; fastcgi_param SPOOLGATE_OWNER $spoolgate_user;",
            // Other modules verify the name as well.
            "auth_gss on; " + owner, "auth_request /ask; " + owner,
        ]
    )
    func right(location: String) throws {
        #expect(try Self.findings(location).isEmpty, "\(location)")
    }

    @Test(
        "an unverified name is reported, also if it comes through a map and a variable",
        arguments: [
            (owner, ""), ("auth_basic off; " + owner, ""), ("auth_basic Off; " + owner, ""),
            (
                "fastcgi_param SPOOLGATE_OWNER $who;",
                "map $remote_user $who { default $remote_user@x; }"
            ),
            ("set $me ${remote_user}@x; fastcgi_param SPOOLGATE_OWNER $me;", ""),
        ]
    )
    func claimed(location: String, http: String) throws {
        let found = try Self.findings(location, http: http)
        #expect(found.map(\.level) == [.failure])
        #expect(found[0].text.contains("accepts any name that a client claims"))
        #expect(found[0].fixes[0].hasPrefix("auth_basic \"Uploads\";"))
        #expect(found[0].fixes[1].hasPrefix("auth_basic_user_file "))
    }

    @Test("a password that nginx ignores because its file is not configured")
    func half() throws {
        let found = try Self.findings("auth_basic \"Uploads\"; " + Self.owner)
        #expect(found.map(\.level) == [.failure])
        #expect(found[0].text.contains("has no auth_basic_user_file"))
        #expect(found[0].fixes == ["auth_basic_user_file /etc/nginx/uploads.htpasswd;"])
    }

    @Test("`satisfy any` admits clients without the password, with any name or none")
    func satisfyAny() throws {
        let any = "satisfy any; allow 10.0.0.0/8; deny all; "
        let found = try Self.findings(Self.basic + Self.owner + any)
        #expect(found.map(\.level) == [.failure])
        #expect(found[0].text.contains("admits clients of 10.0.0.0/8 without the password"))
        #expect(
            found[0].fixes[0].hasPrefix("satisfy all;   (in place of satisfy any; at /etc/nginx/")
        )
        let request = "auth_request /ask; fastcgi_param SPOOLGATE_OWNER $user; "
        let without = try Self.findings(request + any)
        #expect(without.map(\.level) == [.warning])
        #expect(without[0].text.contains("have no owner"))
        let both = try Self.findings(Self.basic + "auth_request /ask; satisfy any; " + Self.owner)
        #expect(both.map(\.level) == [.failure])
        #expect(both[0].text.contains("clients that auth_request admits"))
    }

    private static func file(
        owner: UInt32 = 0,
        group: UInt32,
        mode: UInt32,
        directory: UInt32 = 0o755,
        names: [String]? = ["alice"]
    ) -> PasswordFile {
        func facts(_ path: String, _ mode: UInt32, isDirectory: Bool) -> PathFacts {
            PathFacts(
                path: path,
                owner: owner,
                group: group,
                permissions: mode,
                isDirectory: isDirectory
            )
        }
        let way = PathWay(
            path: "/etc/nginx/uploads.htpasswd",
            facts: [
                facts("/", 0o755, isDirectory: true),
                facts("/etc/nginx", directory, isDirectory: true),
                facts("/etc/nginx/uploads.htpasswd", mode, isDirectory: false),
            ]
        )
        return PasswordFile(way: way, names: names)
    }

    @Test(
        "a missing, unreadable or empty password file: nginx's response and the fix"
    )
    func passwords() throws {
        let missing = PasswordFile(
            way: PathWay(
                path: "/e/p",
                facts: [],
                obstacle: "/e/p does not exist",
                isMissing: true
            ),
            names: nil
        )
        let login = Self.basic + Self.owner
        let cases: [(PasswordFile, [String])] = [
            (missing, ["403 to every login", "install -D -g ", "printf 'NAME:%s", "/e/p"]),
            (Self.file(group: 0, mode: 0o640), ["may not read", "500", "chgrp "]),
            (
                Self.file(group: 33, mode: 0o640, directory: 0o700),
                ["may not pass /etc/nginx", "chmod o+x"]
            ),
            (
                Self.file(group: 33, mode: 0o640, names: []),
                ["no login succeeds", "openssl passwd -apr1"]
            ),
        ]
        for (file, words) in cases {
            let found = try Self.findings(login, file)
            #expect(found.map(\.level) == [.failure], "\(words)")
            let text = found.map(\.line).joined()
            for word in words { #expect(text.contains(word), "\(text)") }
        }
        #expect(try Self.findings(login, Self.file(group: 33, mode: 0o640)).isEmpty)
        #expect(try Self.findings(login, Self.file(group: 0, mode: 0o644, names: nil)).isEmpty)
        #expect(
            PasswordFile.names(in: "# a:b\nalice:x\n\nbob:\ncarol:y:z\n:q\n") == ["alice", "carol"]
        )
    }

    @Test(
        "the password file's path is relative to the main file's directory, unless a variable names it"
    )
    func passwordFile() throws {
        func path(_ location: String) throws -> String? {
            let dump = Self.dump(location)
            return NginxLogin(at: try #require(dump.gateways.first)).passwordFile(
                below: dump.folder
            )
        }
        #expect(try path(Self.basic) == "/etc/nginx/uploads.htpasswd")
        #expect(try path("auth_basic a; auth_basic_user_file /srv/p;") == "/srv/p")
        #expect(try path("auth_basic a; auth_basic_user_file /srv/$host;") == nil)
        #expect(try path("auth_basic off; auth_basic_user_file /srv/p;") == nil)
    }

    @Test(
        "a name that is missing from the file, and a route that refuses clients without an owner"
    )
    func names() throws {
        let login = NginxLogin(at: try #require(Self.dump(Self.basic).gateways.first))
        let file = Self.file(group: 33, mode: 0o640)
        #expect(login.finding(forName: "alice", file) == nil)
        #expect(login.finding(forName: "alice", nil) == nil)
        let unknown = try #require(login.finding(forName: "bob", file))
        #expect(unknown.text.contains("has no line for 'bob'"))
        #expect(unknown.fixes[0].contains(">>/etc/nginx/uploads.htpasswd"))
        #expect(login.findingOfRefusal(route: "default")?.level == .failure)
        let owned = NginxLogin(at: try #require(Self.dump(Self.owner).gateways.first))
        #expect(owned.findingOfRefusal(route: "default") == nil)
    }

    @Test("a password required for a preflight blocks pages of other origins")
    func preflight() throws {
        func finding(_ location: String) throws -> Finding? {
            let place = try #require(Self.dump(location).gateways.first)
            return NginxLogin(at: place).findingOfPreflight(route: "default")
        }
        let found = try #require(try finding(Self.basic + Self.owner))
        #expect(found.level == .failure)
        #expect(found.text.contains("for the preflight of routes.default.cors"))
        #expect(found.fixes[0].hasPrefix("auth_basic $spoolgate_realm;   (in place of auth_basic"))
        for right in [
            "", "auth_basic off; auth_basic_user_file x;",
            "auth_basic $spoolgate_realm; auth_basic_user_file x;", Self.basic + "satisfy any; ",
        ] {
            #expect(try finding(right) == nil, "\(right)")
        }
    }

    // MARK: Ports

    private static func http2(
        _ listen: String,
        http: String = "",
        version: String? = "nginx version: nginx/1.22.1\n"
    ) throws -> [Finding] {
        var dump = dump("", http: http, listen: listen)
        dump.version = version.flatMap { NginxVersion($0) }
        return dump.cleartextHTTP2(at: try #require(dump.gateways.first))
    }

    @Test("an older nginx serves only HTTP/2 without TLS on a port")
    func cleartext() throws {
        let found = try Self.http2("listen 80 http2;")
        #expect(found.map(\.level) == [.failure])
        #expect(found[0].text.contains("'listen 80 http2;' at /etc/nginx/nginx.conf:4"))
        #expect(found[0].text.contains("nginx 1.22.1 speaks nothing else on that port"))
        #expect(
            found[0].fixes == [
                "listen 80;   (in place of listen 80 http2; at /etc/nginx/nginx.conf:4)"
            ]
        )
        // One block decides for all on the port.
        let other = "server { listen *:80 default_server http2; }"
        #expect(try Self.http2("listen 80;", http: other).map(\.level) == [.failure])
        #expect(try Self.http2("listen 80 http2;", version: nil).map(\.level) == [.warning])
        for right in [
            "listen 80; listen 443 ssl http2;", "listen 443 http2; ssl on;", "listen 81;", "",
            "listen unix:/a http2;",
        ] {
            #expect(try Self.http2(right, http: "server { listen 82 http2; }").isEmpty, "\(right)")
        }
        // There are two sockets, each reported once.
        let both = "listen 80 http2; listen 80 http2 backlog=9; listen [::]:80 http2;"
        #expect(try Self.http2(both).count == 2)
        let mixed = "listen 80 ssl; listen [::]:80 http2;"
        #expect(try Self.http2(mixed).map(\.level) == [.failure])
        let secure = "server { listen 80 ssl; }"
        #expect(try Self.http2("listen 80 http2;", http: secure).isEmpty)
        for version in ["nginx/1.25.1", "nginx/1.27.4 (Ubuntu)", "openresty/1.27.1.1"] {
            #expect(try Self.http2("listen 80 http2;", version: version).isEmpty, "\(version)")
        }
    }

    // MARK: Fixes

    @Test(
        "no fix replaces a line by the same line, however it is written",
        arguments: [
            ("auth_basic Uploads;", Fix.login), ("auth_basic \"Uploads\";", Fix.login),
            (owner, Fix.owner), ("fastcgi_request_buffering Off;", Fix.buffering),
            ("fastcgi_intercept_errors OFF;", Fix.errors), ("client_max_body_size 0;", Fix.size),
            (
                "fastcgi_param SPOOLGATE_ORIGIN 'https://a.example';",
                Fix.origin("https://a.example")
            ),
            ("satisfy  all;", Fix.all),
        ]
    )
    func same(line: String, fix: String) throws {
        let place = try #require(Self.dump(line).gateways.first)
        let words = try #require(place.place(of: fix), "\(fix)")
        #expect(words.hasPrefix("(already present at /etc/nginx/nginx.conf:8"), "\(words)")
    }

    @Test("an existing include is not suggested again")
    func included() throws {
        let dump = NginxDump(
            """
            # configuration file /etc/nginx/nginx.conf:
            http { server { location /files/ { fastcgi_pass unix:/g.sock; fastcgi_param SPOOLGATE_ROUTE a;
            include /usr/share/spoolgate/nginx/location*.conf; } } }
            # configuration file /usr/share/spoolgate/nginx/location.conf:
            gzip off;
            """
        )
        let place = try #require(dump.gateways.first)
        let there = try #require(place.place(of: Fix.location))
        #expect(there.hasPrefix("(already present at /usr/share/spoolgate/nginx/location.conf:1"))
        #expect(place.place(of: Fix.proxy) == nil, "what stands in front is another server's")
        let other = "location ^~ /files/ {"
        #expect(
            place.place(of: other) == "(in place of location /files/ { at /etc/nginx/nginx.conf:1)"
        )
        let right = try #require(Self.dump("").gateways.first)
        #expect(right.place(of: other)?.hasPrefix("(already present") == true)
        #expect(place.place(of: Fix.http2) == "(in the server block at /etc/nginx/nginx.conf:1)")
        for listen in ["listen 443 ssl http2;", "listen 443 ssl; http2 on;"] {
            let spoken = try #require(Self.dump("", listen: listen).gateways.first)
            #expect(spoken.place(of: Fix.http2)?.hasPrefix("(already present") == true)
        }
    }

    @Test("commands quote names and paths with any characters")
    func commands() {
        #expect(Fix.addUser("alice", to: "/e/p").hasPrefix("printf 'alice:%s\\n' \"$("))
        #expect(Fix.addUser("o'x", to: "/a b").contains("printf 'NAME:%s"))
        #expect(Fix.addUser("o'x", to: "/a b").contains(">>'/a b'  ("))
    }

    @Test("every spelling that nginx accepts is accepted")
    func spelt() throws {
        let dump = Self.dump(
            """
            fastcgi_param REQUEST_METHOD $request_method; fastcgi_request_buffering OFF;
            fastcgi_intercept_errors Off; client_max_body_size 0m; client_body_buffer_size 1M;
            client_body_timeout 60000ms;
            """
        )
        #expect(try #require(dump.gateways.first).faults.isEmpty)
        for (time, isRight) in [
            ("1m", true), ("60", true), ("1m30s", true), ("59s", false), ("900ms", false),
        ] {
            let dump = Self.dump("client_body_timeout \(time);")
            let place = try #require(dump.gateways.first)
            let isNamed = place.faults.contains { $0.text.contains("client_body_timeout") }
            #expect(isNamed != isRight, "\(time)")
        }
    }
}
