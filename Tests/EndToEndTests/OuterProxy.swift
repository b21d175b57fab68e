// The proxies of docs/FRONTS.md, each with the page's configuration.

import Foundation
import SpoolgateTestSupport

enum OuterProxy: String {
    case haproxy, caddy, apache2, nginx

    var program: String? { Command.find(rawValue) }
}

/// nginx and the gateway behind a proxy that ends TLS.
final class ProxyChain {
    let sandbox: Sandbox
    let port: Int
    private let proxy: Daemon
    private let isNginx: Bool

    var url: String { "https://localhost:\(port)/files/" }
    var certificate: String { nginxFile("server.pem") }

    private func nginxFile(_ name: String) -> String {
        sandbox.directory.appending(path: "nginx/\(name)").path()
    }

    /// Settings for the most interim responses.
    static let manyInterim = ["interim: {heartbeat: 1s}"]

    /// Starts the chain, with `changes` to the proxy's configuration.
    init(
        _ kind: OuterProxy,
        hasModule: Bool = true,
        routeSettings: [String] = [],
        extra: [String] = [],
        changes: KeyValuePairs<String, String> = [:]
    ) throws {
        let ports = try FreePort.take(2)
        port = ports[1]
        isNginx = kind == .nginx
        let location =
            "location ^~ /files/ {\ninclude pass*.conf;\nfastcgi_param SPOOLGATE_ROUTE default;\n"
            + (try RecipeBlock.text(
                "behind",
                "nginx",
                ["https://uploads.example.org": "https://localhost:\(ports[1])"]
            )) + "include location*.conf;\n}\n"
        sandbox = try Sandbox(
            routeSettings: routeSettings,
            extra: extra,
            front: hasModule ? .nginxServing(location) : .nginxPlainServing(location),
            port: ports[0]
        )
        let directory = sandbox.directory
        let folder = directory.appending(path: "proxy")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        let pair = try ["server.pem", "server.key"].map {
            try String(contentsOf: directory.appending(path: "nginx/\($0)"), encoding: .utf8)
        }
        for (name, text) in [
            ("site.pem", pair.joined()), ("certificate.pem", pair[0]), ("key.pem", pair[1]),
        ] { try text.write(to: folder.appending(path: name), atomically: true, encoding: .utf8) }
        var text = try kind.configuration(in: folder.path(), port: port, before: ports[0])
        for (old, new) in changes {
            guard text.contains(old) else {
                throw NeverHappened(description: "\(kind.rawValue) has no \(old)")
            }
            text = text.replacing(old, with: new)
        }
        let file = folder.appending(path: kind == .caddy ? "Caddyfile" : "proxy.conf")
        try text.write(to: file, atomically: true, encoding: .utf8)
        let log = folder.appending(path: "proxy.log")
        let started = try Daemon(
            kind.program ?? kind.rawValue,
            kind.arguments(in: folder.path()),
            log: log,
            environment: ["HOME": folder.path(), "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": ""]
        )
        proxy = started
        try eventually("\(kind.rawValue) listens") { [port] in
            guard started.process.isRunning else {
                let said = (try? String(contentsOf: log, encoding: .utf8)) ?? ""
                throw NeverHappened(description: "\(kind.rawValue) ended: \(said)")
            }
            return (try? WireClient(port: port)) != nil
        }
    }

    deinit {
        // Foundation starts programs with most signals blocked; only nginx unblocks them.
        proxy.signal(isNginx ? SIGTERM : SIGKILL)
        _ = proxy.wait()
    }

    private func curlArguments(
        _ fields: [String],
        _ others: [String],
        heads: String? = nil
    ) -> [String] {
        ["-sS", "--cacert", certificate, "-D", heads ?? self.heads]
            + (["Upload-Draft-Interop-Version: 10"] + fields).flatMap { ["-H", $0] } + others
    }

    private var heads: String { sandbox.directory.appending(path: "heads").path() }

    /// The last request's response header sections, in lower case.
    func told() throws -> String {
        try String(contentsOfFile: heads, encoding: .utf8).lowercased()
    }

    func interimResponses() throws -> Int { Self.interimResponses(try told()) }

    private static func interimResponses(_ told: String) -> Int {
        told.split(separator: "\r\n").count { $0.starts(with: /http\/[\d.]+ 104/) }
    }

    struct SlowUpload {
        fileprivate let client: Daemon
        fileprivate let output: URL
        fileprivate let heads: String

        func end() throws -> (status: String, interim: Int) {
            _ = client.wait()
            let told = try String(contentsOfFile: heads, encoding: .utf8).lowercased()
            return (
                try String(contentsOf: output, encoding: .utf8), ProxyChain.interimResponses(told)
            )
        }
    }

    /// Starts to send 3.9 MB, too little for a report about content of unknown length: nothing for three seconds, then a
    /// part each second.
    func startSlowUpload(_ version: String) throws -> SlowUpload {
        let name = "slow-\(UUID().uuidString)"
        let heads = sandbox.directory.appending(path: name + ".heads").path()
        let output = sandbox.directory.appending(path: name + ".out")
        let line =
            "{ sleep 3; for i in 1 2 3 4 5 6 7 8 9 10 11; do head -c 350000 /dev/zero; sleep 1; "
            + "done; } | exec curl \"$@\""
        let arguments = curlArguments(
            ["Upload-Complete: ?1", "Expect:", "Content-Length: \(11 * 350_000)"],
            [
                version, "-X", "PUT", "-T", "-", "-o", "/dev/null", "-w", "%{http_code}",
                url + "slow.bin",
            ],
            heads: heads
        )
        let client = try Daemon("/bin/sh", ["-c", line, "sh"] + arguments, log: output)
        return SlowUpload(client: client, output: output, heads: heads)
    }

    func curl(_ fields: [String], _ others: [String]) throws -> Command {
        try? FileManager.default.removeItem(atPath: heads)
        return try Command(
            Command.find("curl") ?? "curl",
            ["--max-time", "120"] + curlArguments(fields, others)
        )
    }

    /// Kills curl when more than `size` bytes are in the spool, and returns the daemon's status as JSON.
    @discardableResult
    func curlCut(after size: Int, _ fields: [String], _ others: [String]) throws -> String {
        try? FileManager.default.removeItem(atPath: heads)
        let log = sandbox.directory.appending(path: "curl-\(UUID().uuidString)")
        let client = try Daemon(
            Command.find("curl") ?? "curl",
            curlArguments(fields, others),
            log: log
        )
        defer {
            client.signal(SIGKILL)
            _ = client.wait()
        }
        let name = others.last.map { $0.drop(upTo: "/files/") } ?? ""
        return try eventually("more than \(size) bytes are in the spool") {
            guard client.process.isRunning else {
                let said = try String(contentsOf: log, encoding: .utf8)
                throw NeverHappened(description: "curl exited early: \(said) \(try told())")
            }
            guard try receivedOffset(of: String(name)) > size else { return nil }
            return try sandbox.spoolgate("status", "--json").output
        }
    }

    /// The offset of a receiving upload, by its target or resource; -1 if there is none.
    private func receivedOffset(of path: String) throws -> Int {
        try sandbox.spoolgate("list", "--json", "--state", "receiving").output.split(
            separator: "\n"
        )
        .map { line in
            let object = try JSONSerialization.jsonObject(with: Data(line.utf8))
            guard let upload = object as? [String: Any],
                [upload["target"], upload["resource"]].contains(where: { $0 as? String == path })
            else { return -1 }
            return upload["offset"] as? Int ?? -1
        }.max() ?? -1
    }

    func delivered(_ name: String) throws -> [Data] {
        try sandbox.delivered().filter { $0.lastPathComponent.hasSuffix("-" + name) }
            .map { try Data(contentsOf: $0) }
    }

    /// Sends the rest of a file; curl prints the final status.
    func resume(_ location: String, with bytes: Data, _ version: String) throws -> Command {
        let offset = try eventually("the offset is reported") { () -> Int? in
            _ = try curl([], [version, "-I", location])
            return try field("upload-offset").flatMap { Int($0) }
        }
        let rest = sandbox.directory.appending(path: "rest.bin")
        try bytes.dropFirst(offset).write(to: rest)
        return try curl(
            [
                "Upload-Offset: \(offset)", "Upload-Complete: ?1",
                "Content-Type: application/partial-upload",
            ],
            [
                version, "-X", "PATCH", "-T", rest.path(), "-o", "/dev/null", "-w", "%{http_code}",
                location,
            ]
        )
    }

    func probe(_ arguments: String...) throws -> ProbeTests.Report {
        try ProbeTests.Report(
            Command(
                Sandbox.program,
                ["probe", "--json", "--cacert", certificate] + arguments + [url]
            )
        )
    }

    /// The last value of the last request's response field, in lower case.
    func field(_ name: String) throws -> String? {
        try told().split(separator: "\r\n").last { $0.hasPrefix(name + ": ") }
            .map { String($0.dropFirst(name.utf8.count + 2)) }
    }
}

extension OuterProxy {
    /// The page's configuration with other ports and paths, and Debian's own directives.
    fileprivate func configuration(
        in folder: String,
        port: Int,
        before nginx: Int
    ) throws -> String {
        let isRoot = getuid() == 0
        switch self {
        case .haproxy:
            return try RecipeBlock.text(
                "haproxy",
                "haproxy.cfg",
                [
                    ":443": "127.0.0.1:\(port)", "/etc/haproxy/site.pem": "\(folder)/site.pem",
                    "127.0.0.1:80": "127.0.0.1:\(nginx)",
                ]
            )
        case .caddy:
            return "{\n    admin off\n    auto_https off\n}\n"
                + (try RecipeBlock.text(
                    "caddy",
                    "Caddyfile",
                    [
                        "uploads.example.org {":
                            "https://localhost:\(port) {\n    tls \(folder)/certificate.pem "
                            + "\(folder)/key.pem\n",
                        "127.0.0.1:80": "127.0.0.1:\(nginx)",
                    ]
                ))
        case .apache2:
            let modules = [
                "mpm_event", "authz_core", "ssl", "http2", "proxy", "proxy_http", "reqtimeout",
            ].map { "LoadModule \($0)_module /usr/lib/apache2/modules/mod_\($0).so\n" }.joined()
            // Debian's timeout is 10 s for the first byte; a shorter one fails sooner.
            return """
                \(modules)
                ServerName localhost
                Listen 127.0.0.1:\(port)
                PidFile \(folder)/pid
                ErrorLog \(folder)/error.log
                DefaultRuntimeDir \(folder)
                \(isRoot ? "User www-data\nGroup www-data" : "")
                Timeout 300
                RequestReadTimeout header=20-40,minrate=500
                RequestReadTimeout body=2,minrate=500

                """
                    + (try RecipeBlock.text(
                        "apache-front",
                        "apache.conf",
                        [
                            "*:443": "*:\(port)", "uploads.example.org": "localhost",
                            "/etc/ssl/certs/site.pem": "\(folder)/certificate.pem",
                            "/etc/ssl/private/site.key": "\(folder)/key.pem",
                            "127.0.0.1:80": "127.0.0.1:\(nginx)",
                        ]
                    ))
        case .nginx:
            let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map {
                "\($0)_temp_path \(folder)/\($0);\n"
            }.joined()
            return """
                \(isRoot ? "user root;" : "")
                pid \(folder)/pid;
                events { worker_connections 256; }
                http {
                access_log off;
                \(temporary)
                """
                    + (try RecipeBlock.text(
                        "nginx-front",
                        "nginx.conf",
                        [
                            "listen 443": "listen 127.0.0.1:\(port)",
                            "uploads.example.org": "localhost",
                            "/etc/ssl/certs/site.pem": "\(folder)/certificate.pem",
                            "/etc/ssl/private/site.key": "\(folder)/key.pem",
                            "127.0.0.1:80": "127.0.0.1:\(nginx)",
                        ]
                    )) + "}\n"
        }
    }

    fileprivate func arguments(in folder: String) -> [String] {
        switch self {
        case .haproxy: ["-db", "-f", folder + "/proxy.conf"]
        case .caddy: ["run", "--adapter", "caddyfile", "--config", folder + "/Caddyfile"]
        case .apache2: ["-X", "-f", folder + "/proxy.conf"]
        case .nginx:
            ["-e", folder + "/error.log", "-c", folder + "/proxy.conf", "-g", "daemon off;"]
        }
    }
}
