// The shipped nginx files with the marked lines filled in, as by `make run`.

import Foundation
import SpoolgateTestSupport

enum NginxMistake {
    /// Uploads are buffered, nginx's default.
    case buffering
    case noParameters
    case noOrigin
    /// The distribution's parameters instead of the shipped location.
    case distributionsParameters
    /// `SPOOLGATE_INTERIM` is not a list of statuses.
    case wrongInterim
    /// Uploads are limited to 8 MiB.
    case smallContent
    case standardContent
    /// The owner is the name that a client claims, without a password.
    case openLogin
    case noPasswords
    /// The password file, `closed.htpasswd` next to the other files, is not readable for nginx's workers.
    case closedPasswords
    case cleartextHTTP2
    /// nginx's own pages replace refusals.
    case errorPages
    /// Content may pause at most five seconds.
    case shortGap

    /// Locations for scripts and images, and the shipped one without `^~`.
    case otherLocations
    /// The same next to the correct shipped one.
    case locationsBeside

    private static let locations =
        #"location ~ \.php$ { return 404; } location ~* \.(jpe?g|png|gif)$ { return 405; } "#

    private static func login(_ line: String, _ path: String) -> String {
        line.replacing("#", with: "", maxReplacements: 1)
            .replacing("/etc/nginx/uploads.htpasswd", with: path)
    }

    func made(in line: String) -> String {
        let words = line.split(separator: " ")
        switch self {
        case .buffering where words.first == "fastcgi_request_buffering":
            return "fastcgi_request_buffering on;"
        case .noParameters where words.first == "include" && line.contains("params"): return ""
        case .noOrigin where words.dropFirst().first == "SPOOLGATE_ORIGIN": return ""
        case .distributionsParameters where words.first == "include" && line.contains("location"):
            return "include /etc/nginx/fastcgi_params; client_max_body_size 0;"
        case .wrongInterim where words.first == "include" && line.contains("params"):
            return line + " fastcgi_param SPOOLGATE_INTERIM on;"
        case .smallContent where words.first == "client_max_body_size":
            return "client_max_body_size 8m;"
        case .standardContent where words.first == "client_max_body_size": return ""
        case .openLogin where line.contains("SPOOLGATE_OWNER $remote_user"):
            return "fastcgi_param SPOOLGATE_OWNER $remote_user;"
        case .noPasswords where line.contains("# run: login"):
            return Self.login(line, "/nowhere/uploads.htpasswd")
        case .closedPasswords where line.contains("# run: login"):
            return Self.login(line, "closed.htpasswd")
        case .cleartextHTTP2 where words.first == "listen" && !line.contains("ssl"):
            return line.replacing(";", with: " http2;", maxReplacements: 1)
        case .otherLocations where line == "location ^~ /files/ {":
            return Self.locations + "location /files/ {"
        case .locationsBeside where line == "location ^~ /files/ {": return Self.locations + line
        case .errorPages where words.first == "fastcgi_intercept_errors":
            return "fastcgi_intercept_errors on; error_page 404 409 /sorry.html;"
        case .shortGap where words.first == "client_body_timeout":
            return "client_body_timeout 5s;"
        default: return line
        }
    }
}

/// A login that lets preflight requests pass.
enum NginxLogin: Equatable {
    /// `auth_basic`: alice has the password `secret`.
    case password
    /// `auth_request`, which sends its requests to this port.
    case asking(UInt16)

    static let passwords = "uploads.htpasswd"

    func made(in line: String, folder: String) -> String {
        let isMarked: Bool
        switch self {
        case .password: isMarked = line.contains("# run: login")
        case .asking: isMarked = line.contains("# run: preflight")
        }
        guard isMarked else { return line }
        return line.replacing("#", with: "", maxReplacements: 1)
            .replacing("\"Uploads\"", with: "$spoolgate_realm")
            .replacing("/etc/nginx/\(Self.passwords)", with: "\(folder)/\(Self.passwords)")
    }
}

/// One client's limits, reached with few requests.
enum NginxBounds: Equatable {
    /// The requests with content at a time.
    case senders(Int)
    /// The creations at once, and then one a minute.
    case creators(Int)

    func set(in line: String) -> String {
        switch self {
        case .senders(let count):
            line.replacing(/^limit_conn spoolgate_senders \d+;/) { _ in
                "limit_conn spoolgate_senders \(count);"
            }
        case .creators(let count):
            line.replacing(/rate=\d+r\/s;/) { _ in "rate=1r/m;" }
                .replacing(/^limit_req zone=spoolgate_creators burst=\d+ nodelay;/) { _ in
                    // The first creation is not part of the burst.
                    "limit_req zone=spoolgate_creators burst=\(count - 1) nodelay;"
                }
        }
    }
}

enum NginxConfiguration {
    /// Whether nginx's module writes content to the spool, as shipped; `SPOOLGATE_LANE=0` in the environment disables
    /// that on every route.
    static let hasLane = ProcessInfo.processInfo.environment["SPOOLGATE_LANE"] != "0"

    /// A route's settings; the lane is off if the environment disables it and they do not set it.
    static func lines(ofRoute settings: [String]) -> String {
        let isSilent = hasLane || settings.contains { $0.hasPrefix("spool-receive:") }
        return (isSilent ? settings : ["spool-receive: off"] + settings)
            .map { "    \($0)\n" }.joined()
    }

    /// Writes a sandbox's files and returns the path of nginx.conf; nil leaves the shipped lines unchanged.
    static func write(
        to directory: URL,
        from root: URL,
        port: Int,
        tlsPort: Int,
        module: String?,
        authorizer: UInt16?,
        login: NginxLogin?,
        origin: String?,
        mistake: NginxMistake?,
        bounds: NginxBounds?,
        keepsConnections: Bool,
        hasPage: Bool,
        hasAdmin: Bool,
        locations: String?,
        nodes: [String: String]?
    ) throws -> String {
        let folder = directory.appending(path: "nginx")
        for name in ["log", "snippets", "modules/upstream"] {
            try FileManager.default.createDirectory(
                at: folder.appending(path: name),
                withIntermediateDirectories: true
            )
        }
        try makeCertificate(in: folder)
        try "alice:{PLAIN}secret\n".write(
            to: folder.appending(path: NginxLogin.passwords),
            atomically: true,
            encoding: .utf8
        )
        if let module {
            let modules = folder.appending(path: "modules")
            try FileManager.default.copyItem(
                at: root.appending(path: "nginx/module/interim.conf"),
                to: modules.appending(path: "interim.conf")
            )
            try FileManager.default.copyItem(
                at: root.appending(path: "nginx/module/keepalive.conf"),
                to: modules.appending(path: "upstream/keepalive.conf")
            )
            // Idle connections close soon, so that the daemon's open ones are in use.
            try "keepalive_timeout 2s;\n".write(
                to: modules.appending(path: "upstream/soon.conf"),
                atomically: true,
                encoding: .utf8
            )
            try FileManager.default.copyItem(
                at: URL(filePath: module),
                to: modules.appending(path: "ngx_http_interim_module.so")
            )
        }
        if hasPage {
            try FileManager.default.copyItem(
                at: root.appending(path: "nginx/demo"),
                to: folder.appending(path: "demo")
            )
        }
        for name in [
            "nginx.conf", "http.conf", "spoolgate_nodes.conf", "admin.conf", "demo.conf",
            "location.conf", "params.conf",
            "pass.conf",
            "server.conf",
            "snippets/spoolgate.conf",
            "snippets/spoolgate_auth.conf",
        ] {
            let source = root.appending(path: "nginx/\(name)")
            var text = try String(contentsOf: source, encoding: .utf8)
            if let locations, name == "snippets/spoolgate.conf" {
                text.replace(/location (?:\^~ )?\/files\/ \{\n(?:.*\n)*?\}\n/) { _ in locations }
            }
            var lines = text.components(separatedBy: "\n")
            for index in lines.indices {
                lines[index] = filled(
                    lines[index],
                    directory: directory,
                    port: port,
                    tlsPort: tlsPort,
                    hasModule: module != nil,
                    authorizer: authorizer,
                    origin: origin,
                    hasPage: hasPage,
                    hasAdmin: hasAdmin
                )
                if hasPage { lines[index] = reporting(lines[index]) }
                if let login {
                    lines[index] = login.made(in: lines[index], folder: folder.path())
                }
                if let mistake { lines[index] = mistake.made(in: lines[index]) }
                if let nodes {
                    let own = directory.path() + "/spoolgate.sock"
                    lines[index] = node(nodes, own: own, in: lines[index])
                }
                if let bounds { lines[index] = bounds.set(in: lines[index]) }
                if keepsConnections { lines[index] = keeping(lines[index]) }
            }
            if keepsConnections, name == "http.conf" {
                let socket = "unix:\(directory.path())/spoolgate.sock"
                lines.append("upstream spoolgate_kept { server \(socket); keepalive 8; }\n")
            }
            try lines.joined(separator: "\n").write(
                to: folder.appending(path: name),
                atomically: true,
                encoding: .utf8
            )
        }
        return folder.path() + "/nginx.conf"
    }

    /// Applies the nodes' sockets and the shipped directives for the location to a line.
    private static func node(_ nodes: [String: String], own: String, in line: String) -> String {
        if line.contains("include pass*.conf") {
            return "fastcgi_pass $spoolgate_node; fastcgi_next_upstream error timeout;"
        }
        if line.contains("include http*.conf") { return line + " include spoolgate_nodes.conf;" }
        guard let mark = line.range(of: "# run: n", options: .backwards) else { return line }
        let socket = nodes["n" + line[mark.upperBound...]] ?? own
        return line.replacing(/10\.0\.0\.\d:9000/) { _ in "unix:\(socket)" }
    }

    /// Adds a report URI to the page's policy, so that nginx logs violations.
    private static func reporting(_ line: String) -> String {
        guard line.contains("default-src 'self'") else { return line }
        return line.replacing("\" always;", with: "; report-uri /csp-report\" always;")
    }

    private static func keeping(_ line: String) -> String {
        if line.contains("fastcgi_pass unix:") { return "fastcgi_pass spoolgate_kept;" }
        return line.replacingOccurrences(of: "fastcgi_keep_conn off", with: "fastcgi_keep_conn on")
    }

    private static func filled(
        _ line: String,
        directory: URL,
        port: Int,
        tlsPort: Int,
        hasModule: Bool,
        authorizer: UInt16?,
        origin: String?,
        hasPage: Bool,
        hasAdmin: Bool
    ) -> String {
        if line.contains("[::]:") { return "" }
        if let origin, line.contains("fastcgi_param SPOOLGATE_ORIGIN") {
            return "fastcgi_param SPOOLGATE_ORIGIN \"\(origin)\";"
        }
        let line = line.replacingOccurrences(of: "/usr/share/spoolgate/nginx/", with: "")
            .replacingOccurrences(of: "/etc/nginx/conf.d/spoolgate*", with: "http*")
        guard let mark = line.range(of: "# run: ") else { return line }
        let folder = directory.appending(path: "nginx").path()
        switch line[mark.upperBound...].prefix(while: { $0.isLetter || $0 == "-" }) {
        case "port": return line.replacingOccurrences(of: "8080", with: "127.0.0.1:\(port)")
        case "tls-port": return line.replacingOccurrences(of: "8443", with: "127.0.0.1:\(tlsPort)")
        case "certificate": return "ssl_certificate \(folder)/server.pem;"
        case "key": return "ssl_certificate_key \(folder)/server.key;"
        case "admin-socket": return "fastcgi_pass unix:\(directory.path())/admin.sock;"
        case "socket": return "server unix:\(directory.path())/spoolgate.sock;"
        case "authorizer":
            return line.replacingOccurrences(of: "3000", with: "\(authorizer ?? 3000)")
        case "module" where hasModule, "auth" where authorizer != nil, "page" where hasPage,
            "admin" where hasAdmin:
            return line.replacing("#", with: "", maxReplacements: 1)
        default: return line
        }
    }

    private static func makeCertificate(in folder: URL) throws {
        let arguments =
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
            + "-subj /CN=localhost -keyout \(folder.path())/server.key -out \(folder.path())/server.pem"
        let result = try Command(
            Command.find("openssl") ?? "openssl",
            arguments.split(separator: " ").map(String.init)
        )
        guard result.status == 0 else { throw WireClient.Broken(description: result.errors) }
    }
}
