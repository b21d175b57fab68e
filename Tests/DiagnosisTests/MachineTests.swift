// The facts read from nginx's files, its processes, the socket and the units.

@testable import SpoolgateDiagnosis
@testable import SpoolgatePosix
import Testing

@Suite struct MachineTests {
    private static let dump = """
        # configuration file /etc/nginx/nginx.conf:
        user www-data;   # who
        http {
            include conf.d/*.conf;
            client_max_body_size 8m;
            log_format a '$remote_addr { "$request" ; ';
            server {
                server_name up.example;
                include "snippets/spoolgate*.conf";
                location / { return 404; }
            }
            server { server_name other; location /files/ { fastcgi_pass unix:/other.sock; } }
        }

        # configuration file /etc/nginx/conf.d/spoolgate.conf:
        upstream spoolgate {
            server unix:/run/spoolgate/spoolgate.sock;
            keepalive 64;
        }

        # configuration file /etc/nginx/snippets/spoolgate.conf:
        location /files/ {
            fastcgi_pass spoolgate;
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_request_buffering on;
            fastcgi_intercept_errors off;
            client_body_timeout 10s;
            set $x ${uri}a;
            if ($request_method ~ ^(POST|PUT)$) { return 444; }
        }

        """

    @Test("the location belongs to the server block that nginx chooses by port, name and default")
    func chosen() throws {
        let dump = NginxDump(
            """
            # configuration file /n:
            http {
            server { listen 127.0.0.1:3000; location /files/ { fastcgi_pass unix:/php.sock; } }
            server { listen [::]:80; listen 80 default_server; location /files/ { fastcgi_pass unix:/g.sock; } }
            server { listen *:80; server_name up.example; location /files/ { fastcgi_pass unix:/named.sock; } }
            server { listen 443 ssl; location /files/ { fastcgi_pass unix:/page.sock; } }
            server { listen 443 ssl; location /files/ {
                fastcgi_param SPOOLGATE_ROUTE a; fastcgi_pass unix:/tls.sock; } }
            server { listen unix:/a; location /files/ { fastcgi_pass unix:/local.sock; } }
            server { listen 443; server_name forgotten.example; location / { root /srv; } }
            server { listen 443; server_name front.example; location / { proxy_pass http://127.0.0.1; } }
            server { listen 80; server_name front.example; location / { fastcgi_pass unix:/behind.sock; } }
            }
            """
        )
        let chosen: [(String, UInt16, String?)] = [
            ("any", 80, "/g.sock"), ("up.example", 80, "/named.sock"), ("any", 443, "/tls.sock"),
            ("any", 3000, "/php.sock"), ("any", 8080, "/tls.sock"),
            ("up.example", 443, "/tls.sock"),
            ("front.example", 443, "/behind.sock"), ("forgotten.example", 443, nil),
        ]
        for (host, port, socket) in chosen {
            let place = dump.locations(of: "/files/a", host: host, port: port).first
            #expect(place.flatMap(dump.socket) == socket)
        }
    }

    @Test("nginx's files are read with their includes, and each directive has its place")
    func dumped() throws {
        let dump = NginxDump(Self.dump)
        let places = dump.locations(of: "/files/a", host: "up.example", port: 80)
        #expect(
            places.map(\.location.place) == [
                "/etc/nginx/snippets/spoolgate.conf:1", "/etc/nginx/nginx.conf:11",
            ]
        )
        let place = try #require(places.first)
        #expect(place.value(of: "client_max_body_size")?.place == "/etc/nginx/nginx.conf:4")
        #expect(place.value(of: "client_body_timeout")?.text == "client_body_timeout 10s;")
        #expect(place.value(of: "set")?.words == ["set", "$x", "${uri}a"])
        #expect(place.value(of: "log_format")?.words.last == #"$remote_addr { "$request" ; "#)
        #expect(dump.socket(of: place) == "/run/spoolgate/spoolgate.sock")
        #expect(
            dump.locations(of: "/files/a", host: "other", port: 80).first.flatMap(dump.socket)
                == "/other.sock"
        )
        #expect(dump.locations(of: "/", host: "up.example", port: 80).isEmpty)
    }

    @Test(
        "reading content before the location is chosen is reported",
        arguments: [
            ("", nil), ("client_body_early_read 0;", nil), ("client_body_early_read \"\" 0;", nil),
            ("client_body_early_read 1;", "fail"), ("client_body_early_read $json;", "warn"),
            ("client_body_early_read $json 1;", "fail"),
        ] as [(String, String?)]
    )
    func earlyRead(directive: String, level: String?) throws {
        let dump = NginxDump(
            """
            # configuration file /n:
            http { server {
            \(directive)
            listen 80; location /files/ { fastcgi_pass unix:/g.sock; } } }
            """
        )
        let place = try #require(dump.locations(of: "/files/", host: "a", port: 80).first)
        let found = place.faults.first { $0.text.contains("client_body_early_read") }
        #expect(found?.level.rawValue == level)
        guard let found else { return }
        #expect(found.fixes == ["client_body_early_read 0;"])
        #expect(found.text.contains("/n:2"))
        #expect(place.place(of: found.fixes[0]) == "(in place of \(directive) at /n:2)")
    }

    @Test(
        "a directive that breaks uploads is reported with its place, and the fix with the line it replaces"
    )
    func faults() throws {
        let place = try #require(
            NginxDump(Self.dump).locations(of: "/files/", host: "up.example", port: 80).first
        )
        let found = place.faults.map { [$0.level.rawValue, $0.text] + $0.fixes }
        #expect(
            found == [
                [
                    "fail",
                    "'fastcgi_request_buffering on;' at /etc/nginx/snippets/spoolgate.conf:4: nginx buffers "
                        + "uploads, and interrupted ones start again",
                    "fastcgi_request_buffering off;",
                ],
                [
                    "fail",
                    "'client_max_body_size 8m;' at /etc/nginx/nginx.conf:4: nginx refuses larger content",
                    "client_max_body_size 0;",
                ],
                [
                    "warn",
                    "nginx's default 'client_body_buffer_size 16k;' applies at "
                        + "/etc/nginx/snippets/spoolgate.conf:1: uploads over HTTP/2 are slow",
                    "client_body_buffer_size 1m;",
                ],
                [
                    "warn",
                    "'client_body_timeout 10s;' at /etc/nginx/snippets/spoolgate.conf:6: nginx closes the "
                        + "connections of clients that pause longer",
                    "client_body_timeout 60s;",
                ],
            ]
        )
        #expect(
            place.place(of: "fastcgi_request_buffering off;")
                == "(in place of fastcgi_request_buffering on; at /etc/nginx/snippets/spoolgate.conf:4)"
        )
        #expect(
            place.place(of: "fastcgi_param SPOOLGATE_ORIGIN https://a;")
                == "(in location /files/ at /etc/nginx/snippets/spoolgate.conf:1)"
        )
        #expect(
            place.place(of: "fastcgi_intercept_errors off;")
                == "(already present at /etc/nginx/snippets/spoolgate.conf:5: check the proxies in "
                + "front)"
        )
        #expect(place.place(of: "systemctl status spoolgate.socket") == nil)
        #expect(NginxDump("").directives.isEmpty)
        #expect(NginxDump("# configuration file a:\ninclude a;\nb {").directives.count == 1)
    }

    @Test("an nginx configuration error differs from a file that only root may read")
    func unread() {
        let wrong = LocalCheck.unread("nginx -T: [emerg] 1#1: unknown directive \"a\" in /n:3")
        #expect(wrong.level == .failure && wrong.fixes.first?.hasPrefix("fix that line") == true)
        let unloaded = LocalCheck.unread(
            "[emerg] unknown directive in /usr/share/spoolgate/nginx/modules/interim.conf:10"
        )
        #expect(unloaded.fixes.first?.hasPrefix("apt install --reinstall ") == true)
        let closed = LocalCheck.unread(
            "nginx -T: [emerg] 1#1: open() \"/k\" failed (13: Permission denied)"
        )
        #expect(
            closed.level == .warning
                && closed.fixes == ["run the probe as root, on the machine of nginx"]
        )
        #expect(LocalCheck.unread("nginx is not installed").level == .warning)
    }

    // MARK: The socket

    private static func facts(_ path: String, _ permissions: UInt32) -> PathFacts {
        PathFacts(
            path: path,
            owner: 10,
            group: 20,
            permissions: permissions,
            isDirectory: path != "/run/s.sock"
        )
    }

    private static func socket(
        _ worker: Credentials?,
        _ mode: UInt32 = 0o660,
        directory: UInt32 = 0o755
    ) -> Finding {
        let way = [facts("/", 0o755), facts("/run", directory), facts("/run/s.sock", mode)]
        let workers: Set<Credentials> = worker.map { [$0] } ?? []
        return SocketSeen(path: "/run/s.sock", state: .listening, way: way, workers: workers)
            .finding
    }

    @Test(
        "nginx's workers may connect by the socket's owner, group or mode; otherwise the reason is given"
    )
    func sockets() {
        let owner = Credentials(user: 10, groups: [99])
        let member = Credentials(user: 11, groups: [20, 99])
        let other = Credentials(user: 12, groups: [99])
        for (worker, mode) in [(owner, 0o600), (member, 0o660), (other, 0o666)] {
            #expect(Self.socket(worker, UInt32(mode)).level == .ok)
        }
        for (worker, mode) in [(owner, 0o066), (member, 0o606), (other, 0o660)] {
            let finding = Self.socket(worker, UInt32(mode))
            #expect(finding.level == .failure)
            #expect(finding.text.contains("may not connect to /run/s.sock (owner "))
            #expect(finding.fixes.contains { $0.contains("SocketMode=0660") })
        }
        #expect(Self.socket(Credentials(user: 0, groups: []), 0o000).level == .ok)
        let closed = Self.socket(other, 0o666, directory: 0o700)
        #expect(closed.level == .failure && closed.fixes == ["chmod o+x /run"])
        #expect(Self.socket(nil).level == .warning)
        let way = [Self.facts("/", 0o755), Self.facts("/run/s.sock", 0o660)]
        let two = SocketSeen(
            path: "/run/s.sock",
            state: .listening,
            way: way,
            workers: [member, other]
        )
        #expect(two.finding.level == .ok, "another nginx may run beside")
        let deaf = SocketSeen(path: "/a", state: .deaf, way: [], workers: [])
        #expect(deaf.finding.fixes.first?.contains("systemctl start") == true)
        let absent = SocketSeen(path: "/nowhere/at/all.sock", workers: [])
        #expect(absent.finding.level == .failure)
        #expect(absent.finding.text == "/nowhere/at/all.sock does not exist (/nowhere is missing)")
    }

    @Test("the operator's socket error names the affected pages and the worker's group")
    func adminSocket() {
        var worker = Credentials(user: 12, groups: [0, 99], group: 99)
        let way = [Self.facts("/", 0o755), Self.facts("/run/s.sock", 0o660)]
        let seen = SocketSeen(
            kind: .admin,
            path: "/run/s.sock",
            state: .listening,
            way: way,
            workers: [worker]
        )
        #expect(seen.finding.name == "admin" && seen.finding.level == .failure)
        #expect(seen.finding.text.hasSuffix(": the status page and the metrics return 502"))
        #expect(seen.finding.fixes[0].hasPrefix("systemctl restart spoolgate"))
        #expect(seen.finding.fixes[1].contains("SocketGroup=99, SocketMode=0660"))
        worker.group = nil
        #expect(worker.mainGroup == 0)
    }

    @Test("a process's file credentials include all its groups")
    func credentials() {
        let status = "Name:\tnginx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \n"
        let mixed = Credentials(user: 4, isMixed: true, groups: [8, 9, 10], group: 8)
        #expect(Credentials(status: status) == mixed)
        let uniform = status.replacing("1\t2\t3\t4", with: "4\t4\t4\t4")
        #expect(Credentials(status: uniform)?.isMixed == false)
        #expect(Credentials(status: "Name: x\nUid: 1\n") == nil)
    }

    @Test("room is the free space above the reserve, up to the quota")
    func room() {
        func finding(free: Int64, quota: Int64 = 0) -> Finding {
            RoomSeen(
                path: "/s",
                user: "u",
                free: free,
                reserve: 1 << 30,
                quota: quota,
                largest: 4 << 30
            ).finding
        }
        #expect(finding(free: 5 << 30) == .ok("spool", "/s, 4.0GiB free above the reserve"))
        #expect(finding(free: 4 << 30).level == .warning)
        #expect(finding(free: 50 << 30, quota: 1 << 30).level == .warning)
        #expect(finding(free: 1 << 30).level == .failure)
    }
}
