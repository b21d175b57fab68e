// A location in nginx's files, and its mistakes that break or slow uploads.
//
// Pure. Reports only directives known to be harmful.

import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUpstream

struct NginxPlace: Sendable {
    /// The location, then the blocks that enclose it, from the innermost to `http`.
    let around: [NginxDirective]
    /// The location's password file, if any.
    var passwords: PasswordFile?
    /// Whether this nginx loads `ngx_http_interim_module`.
    var loadsModule = false

    init(around: [NginxDirective]) { self.around = around }

    var location: NginxDirective { around[0] }
    var server: NginxDirective? { around.first { $0.name == "server" } }
    /// The parameters of this location.
    var words: String { location.arguments.joined(separator: " ") }
    /// The path of this location without its modifier.
    var path: String { location.arguments.last ?? "/" }
    var route: String { value(of: "fastcgi_param", "SPOOLGATE_ROUTE")?.arguments.last ?? "default" }

    /// Whether this location passes requests to the gateway.
    var isGateways: Bool {
        !location.all("fastcgi_pass").isEmpty
            && location.all("fastcgi_param").contains {
                $0.arguments.first?.hasPrefix("SPOOLGATE_") ?? false
            }
    }

    /// Whether this is the location in admin.conf, or another one of an `admin.sock`.
    var isAdmin: Bool { path == "/-/spoolgate/" || socket?.hasSuffix("/admin.sock") ?? false }

    /// The unix socket to which this location passes requests, if any.
    var socket: String? {
        guard let target = value(of: "fastcgi_pass")?.arguments.first else { return nil }
        let upstream = around.last?.all("upstream").first { $0.arguments.first == target }
        let servers = upstream?.all("server").compactMap(\.arguments.first) ?? []
        return ([target] + servers).first { $0.hasPrefix("unix:") }
            .map { String($0.dropFirst(5).prefix { $0 != ":" }) }
    }

    /// Returns whether this location passes requests to the gateway at `address`, or might.
    func leads(to address: ListenAddress) -> Bool {
        // An address that is a variable or a port may lead to this gateway.
        guard case .unix(let path, _, _) = address, let socket else { return true }
        return socket == path
    }

    /// Returns the directive in effect with this name and, unless `first` is nil, this first parameter.
    func value(of name: String, _ first: String? = nil) -> NginxDirective? {
        for block in around {
            let all = block.all(name)
            let found = all.last { first == nil || $0.arguments.first == first }
            if let found { return found }
            // A block does not inherit `fastcgi_pass`, and inherits `fastcgi_param` only if the block itself has none.
            if name == "fastcgi_pass" || name == "fastcgi_param" && !all.isEmpty { return nil }
        }
        return nil
    }

    /// The finding that this location passes uploads to the gateway.
    var found: Finding { .ok("nginx", "location \(words), \(location.place)") }

    /// The settings that decide whether nginx writes the location's content into the spool.
    var lane: NginxLane {
        let target = value(of: "fastcgi_pass")?.arguments.first ?? ""
        return NginxLane(
            directive: value(of: "spool_receive"),
            isBuffering: !(value(of: "fastcgi_request_buffering")?.saysOff ?? false),
            // A variable may name a unix socket.
            passesFiles: socket != nil || target.hasPrefix("$"),
            hasModule: loadsModule || value(of: "interim_responses") != nil
        )
    }

    // MARK: Mistakes

    var faults: [Finding] {
        var found: [Finding] = []
        func judge(
            _ standard: String,
            _ effect: String,
            _ fix: String,
            level: Finding.Level = .failure,
            isRight: (String) -> Bool
        ) {
            let words = standard.split(separator: " ").map(String.init)
            let directive = value(of: words[0])
            guard !isRight(directive?.arguments.first ?? words[1]) else { return }
            let place =
                directive.map { "'\($0.text)' at \($0.place)" }
                ?? "nginx's default '\(standard);' applies at \(location.place)"
            found.append(Finding(level, "nginx", "\(place): \(effect)", fixes: [fix]))
        }
        judge(
            "fastcgi_request_buffering on",
            "nginx buffers uploads, and interrupted ones start again",
            Fix.buffering
        ) { $0.lowercased() == "off" }
        judge("client_max_body_size 1m", "nginx refuses larger content", Fix.size) {
            Self.size($0) == 0
        }
        judge(
            "client_body_buffer_size 16k",
            "uploads over HTTP/2 are slow",
            Fix.window,
            level: .warning
        ) { Self.size($0) >= 1 << 20 }
        judge(
            "client_body_early_read 0",
            "nginx buffers content before it chooses the location",
            Fix.lateContent
        ) { ["", "0"].contains($0) || $0.contains("$") }
        if value(of: "fastcgi_param", "REQUEST_METHOD") == nil {
            let text = "the location at \(location.place) passes no FastCGI parameters"
            found.append(.failure("nginx", text, [Fix.location]))
        }
        return found
    }

    /// Parses a size such as `0` or `8m`; returns 0 if the text is invalid.
    private static func size(_ text: String) -> Int64 {
        let units: [Character: Int64] = ["k": 1 << 10, "m": 1 << 20, "g": 1 << 30]
        let unit = text.lowercased().last.flatMap { units[$0] }
        return (Int64(digits: unit == nil ? text[...] : text.dropLast()) ?? 0) * (unit ?? 1)
    }

    /// Returns the failure if an upstream's requests return to this location, through this machine's nginx.
    ///
    /// The upstream receives the client's host and path, so a location of its route gets them back if its server block
    /// listens at the upstream's address. Loops through other machines, or below a path, are only refused with 508.
    func loop(_ upstream: String, route: String) -> Finding? {
        guard route == self.route, let url = ProbeURL(upstream), url.path == "/" else { return nil }
        let addresses = LocalAddress.all(of: url.host)
        guard !addresses.isEmpty, server?.listens(on: url.port, at: addresses) ?? false else {
            return nil
        }
        return .failure(
            "upstream",
            "\(route): \(upstream) is this machine's nginx, whose location \(words) at "
                + "\(location.place) passes requests back to the gateway",
            ["set the application's own address in spoolgate.yaml"]
        )
    }
}
