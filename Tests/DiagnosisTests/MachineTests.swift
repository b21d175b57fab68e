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
            fastcgi_param SPOOLGATE_ROUTE default;
            # comment; {
            add_header "a \\"b\\"\\.c\\\\" 'it\\'s';
            client_body_timeout 10s;
            set $x ${uri}a;
            if ($request_method ~ ^(POST|PUT)$) { return 444; }
        }

        """

    @Test("the location belongs to the server block with this port and name")
    func chosen() throws {
        func server(_ lines: String, _ name: String) -> String {
            "server { \(lines) location /files/ { fastcgi_param SPOOLGATE_ROUTE a; "
                + "fastcgi_pass unix:/\(name).sock; } }"
        }
        let dump = NginxDump(
            """
            # configuration file /n:
            http {
            server { listen 127.0.0.1:3000; location /files/ { fastcgi_pass unix:/php.sock; } }
            \(server("listen *:80; server_name up.example;", "named"))
            \(server("listen 443 ssl;", "tls"))
            server { listen 443; server_name forgotten.example; location / { root /srv; } }
            \(server("server_name behind.example;", "behind"))
            }
            """
        )
        let chosen: [(String, UInt16, String?)] = [
            ("up.example", 80, "/named.sock"), ("any", 443, "/tls.sock"), ("any", 3000, nil),
            ("up.example", 443, "/tls.sock"), ("behind.example", 80, "/behind.sock"),
            ("behind.example", 8443, "/behind.sock"), ("forgotten.example", 443, nil),
        ]
        for (host, port, socket) in chosen {
            let place = dump.gateway(of: "/files/a", host: host, port: port)
            #expect(place?.socket == socket, "\(host):\(port)")
        }
        #expect(dump.gateway(of: "/file", host: "up.example", port: 80) == nil)
    }

    @Test("nginx's files are read with their includes, and each directive has its place")
    func dumped() throws {
        let dump = NginxDump(Self.dump)
        #expect(dump.gateways.map(\.location.place) == ["/etc/nginx/snippets/spoolgate.conf:1"])
        let place = try #require(dump.gateway(of: "/files/a", host: "up.example", port: 80))
        #expect(place.value(of: "client_max_body_size")?.place == "/etc/nginx/nginx.conf:4")
        #expect(place.value(of: "client_body_timeout")?.text == "client_body_timeout 10s;")
        #expect(place.value(of: "client_body_timeout")?.line == 7)
        #expect(place.value(of: "set")?.words == ["set", "$x", "${uri}a"])
        #expect(place.value(of: "log_format")?.words.last == #"$remote_addr { "$request" ; "#)
        #expect(place.value(of: "add_header")?.words == ["add_header", #"a "b"\.c\"#, "it's"])
        #expect(place.socket == "/run/spoolgate/spoolgate.sock")
        #expect(NginxDump("").directives.isEmpty)
        #expect(NginxDump("# configuration file a:\ninclude a;\nb {").directives.count == 1)
    }

    @Test("an nginx configuration error differs from a file that only root may read")
    func unread() {
        let wrong = LocalCheck.unread("nginx -T: [emerg] 1#1: unknown directive \"a\" in /n:3")
        #expect(wrong.level == .failure && wrong.fixes.first?.hasPrefix("fix that line") == true)
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
        _ workers: Set<Credentials>,
        _ mode: UInt32 = 0o660,
        directory: UInt32 = 0o755
    ) -> SocketEvidence {
        let way = [facts("/", 0o755), facts("/run", directory), facts("/run/s.sock", mode)]
        return SocketEvidence(way: PathWay(path: "/run/s.sock", facts: way), workers: workers)
    }

    @Test(
        "nginx's workers may connect by the socket's owner, group or mode; otherwise the reason is given"
    )
    func sockets() {
        let owner = Credentials(user: 10, groups: [99])
        let member = Credentials(user: 11, groups: [20, 99])
        let other = Credentials(user: 12, groups: [99])
        for (worker, mode) in [(owner, 0o600), (member, 0o660), (other, 0o666)] {
            #expect(Self.socket([worker], UInt32(mode)).finding.level == .ok)
        }
        for (worker, mode) in [(owner, 0o066), (member, 0o606), (other, 0o660)] {
            let finding = Self.socket([worker], UInt32(mode)).finding
            #expect(finding.level == .failure)
            #expect(finding.text.contains("may not connect to /run/s.sock (owner "))
            #expect(finding.fixes.contains { $0.contains("SocketMode=0660") })
        }
        #expect(Self.socket([Credentials(user: 0, groups: [])], 0o000).finding.level == .ok)
        let closed = Self.socket([other], 0o666, directory: 0o700).finding
        #expect(closed.level == .failure && closed.fixes == ["chmod o+x /run"])
        #expect(Self.socket([]).finding.level == .warning)
        #expect(Self.socket([member, other]).finding.level == .ok, "another nginx may also run")
        var deaf = Self.socket([])
        deaf.isListening = false
        #expect(deaf.finding.fixes.first?.contains("systemctl start") == true)
        let absent = SocketEvidence(path: "/nowhere/at/all.sock", workers: [])
        #expect(absent.finding.level == .failure && !absent.isListening)
        #expect(absent.finding.text == "/nowhere/at/all.sock does not exist (/nowhere is missing)")
    }

    @Test("the operator's socket error names the affected pages and the worker's group")
    func adminSocket() throws {
        var seen = Self.socket([Credentials(user: 12, groups: [0, 99], group: 99)])
        seen.isAdmin = true
        #expect(seen.finding.name == "admin" && seen.finding.level == .failure)
        #expect(seen.finding.text.hasSuffix(": the status page and the metrics return 502"))
        let first = try #require(seen.finding.fixes.first)
        #expect(first.hasPrefix("systemctl restart spoolgate"))
        #expect(seen.finding.fixes.contains { $0.contains("SocketGroup=99, SocketMode=0660") })
    }

    @Test("a process's file credentials include all its groups")
    func credentials() {
        let status = "Name:\tnginx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \n"
        let all = Credentials(user: 4, groups: [8, 9, 10], group: 8)
        #expect(Credentials(status: status) == all)
        #expect(Credentials(status: "Name: x\nUid: 1\n") == nil)
    }

    @Test("room is the free space above the reserve, up to the quota")
    func room() {
        func finding(free: Int64, quota: Int64 = 0) -> Finding {
            RoomEvidence(
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
