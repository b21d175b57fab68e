// Whether the gateway's requests return to the gateway, over its own socket or through nginx on this machine.
//
// Loops through other machines remain undetected here. The gateway refuses their requests with 508.

import SpoolgatePosix
import SpoolgateUpstream

/// The ways to reach one gateway on this machine.
struct LoopSeen {
    let address: ListenAddress
    let files: [NginxDump]
    /// The locations that pass requests to the gateway, or might.
    let places: [NginxPlace]

    init(_ address: ListenAddress, _ files: [NginxDump]) {
        self.address = address
        self.files = files
        places = files.flatMap { dump in
            dump.gateways.filter { place in
                // An address that is a variable or a port may lead to this gateway.
                guard case .unix(let path, _, _) = address, let socket = dump.socket(of: place)
                else { return true }
                return socket == path
            }
        }
    }

    /// Returns a failure if requests to `target` return to the gateway, or nil if no loop is found.
    ///
    /// `name` is the route's name, or `events` for the webhook. `service` is the path and query of requests to an
    /// authorizer or the webhook; nil for an upstream, which receives those of the client's request.
    func finding(
        _ target: UpstreamTarget,
        _ kind: String,
        _ name: String,
        service: String?
    ) -> Finding? {
        switch target {
        case .unix(let path):
            guard case .unix(path, _, _) = address else { return nil }
            return Self.finding(kind, "\(name): unix:\(path) is the gateway's own socket")
        case .http(let base):
            guard let url = ProbeURL(base) else { return nil }
            let addresses = LocalAddress.all(of: url.host)
            guard !addresses.isEmpty else { return nil }
            if case .tcp(let own) = address,
                NginxListen(own).hears(addresses, port: url.port)
            {
                return Self.finding(kind, "\(name): \(base) is the gateway's own socket")
            }
            guard let place = place(url, addresses, name, service) else { return nil }
            let shown = place.location.arguments.joined(separator: " ")
            return Self.finding(
                kind,
                "\(name): \(base) is this machine's nginx, whose location \(shown) at "
                    + "\(place.location.place) passes requests back to the gateway"
            )
        case .directory, .bucket: return nil
        }
    }

    private static func finding(_ kind: String, _ text: String) -> Finding {
        .failure(kind, text, ["set the application's own address in spoolgate.yaml"])
    }

    /// Returns the location that passes the requests back to the gateway, if any.
    private func place(
        _ url: ProbeURL,
        _ addresses: [String],
        _ route: String,
        _ service: String?
    ) -> NginxPlace? {
        if let service {
            return files.lazy.compactMap {
                $0.gateway(service, of: [url.host], at: addresses, url.port)
            }.first { isOurs($0) }
        }
        // The upstream receives the client's host and path.
        let base = url.path == "/" ? "" : url.path
        for place in places where place.route == route {
            let found = files.lazy.compactMap {
                $0.gateway(base + place.path, of: place.serverNames, at: addresses, url.port)
            }.first { isOurs($0) }
            if let found { return found }
        }
        return nil
    }

    /// Returns the settings that decide whether nginx writes the content of a route into the spool, at its first
    /// location; nil if the route has no location.
    func lane(ofRoute name: String, _ processes: NginxProcesses) -> NginxLane? {
        for dump in files {
            let place = dump.gateways.first { isOurs($0) && $0.route == name }
            if let place { return dump.lane(at: place, processes) }
        }
        return nil
    }

    func isOurs(_ place: NginxPlace) -> Bool {
        places.contains { $0.location == place.location }
    }
}

extension NginxPlace {
    var route: String {
        value(of: "fastcgi_param", "SPOOLGATE_ROUTE")?.arguments.last ?? "default"
    }

    fileprivate var serverNames: [String] {
        around.first { $0.name == "server" }?.serverNames ?? []
    }
}

extension NginxDirective {
    fileprivate var serverNames: [String] {
        (block ?? []).filter { $0.name == "server_name" }.flatMap { $0.arguments }
    }

    fileprivate var listens: [NginxListen] {
        let told = (block ?? []).filter { $0.name == "listen" }
            .map { NginxListen($0.arguments.first ?? "") }
        return told.isEmpty ? [NginxListen("80")] : told
    }

    fileprivate var isDefault: Bool {
        (block ?? []).contains {
            $0.name == "listen" && $0.arguments.contains("default_server")
        }
    }
}

/// The address and port of a `listen` directive.
struct NginxListen: Equatable {
    /// The host, or nil for all addresses.
    private let host: String?
    /// The port, or nil for a unix socket.
    let port: UInt16?
    /// Whether the address is IPv6, which matters because `80` and `[::]:80` are two sockets.
    private let isSix: Bool

    /// Parses an address of nginx's `listen`: `80`, `192.0.2.1:80`, `[::1]:80`, `*:80`, `192.0.2.1` or `unix:…`.
    init(_ text: String) {
        isSix = text.hasPrefix("[")
        guard !text.hasPrefix("unix:") else {
            (host, port) = (nil, nil)
            return
        }
        if let port = UInt16(text) {
            (host, self.port) = (nil, port)
            return
        }
        let colon = text.hasSuffix("]") ? nil : text.lastIndex(of: ":")
        let name = text[..<(colon ?? text.endIndex)].filter { $0 != "[" && $0 != "]" }
        host = ["*", "0.0.0.0", "::", ""].contains(name) ? nil : name == "localhost" ? nil : name
        port = colon.map { UInt16(text[text.index(after: $0)...]) ?? 0 } ?? 80
    }

    /// Returns whether nginx accepts connections to `port` at one of `addresses`.
    func hears(_ addresses: [String], port: UInt16) -> Bool {
        self.port == port && (host.map { addresses.contains($0) } ?? true)
    }
}

extension NginxDump {
    /// Returns the location that nginx chooses for a path, if it passes requests to a gateway.
    ///
    /// nginx chooses the server block by address, port and name, and in the block the longest matching prefix. Another
    /// check covers regular expressions.
    fileprivate func gateway(
        _ path: String,
        of names: [String],
        at addresses: [String],
        _ port: UInt16
    ) -> NginxPlace? {
        for http in directives where http.name == "http" {
            let servers = (http.block ?? []).filter { server in
                server.name == "server"
                    && server.listens.contains { $0.hears(addresses, port: port) }
            }
            let chosen =
                servers.first { !Set($0.serverNames).isDisjoint(with: names) }
                ?? servers.first(where: \.isDefault) ?? servers.first
            guard let chosen else { continue }
            var best: (place: NginxPlace, length: Int)?
            func look(_ around: [NginxDirective]) {
                for location in around.first?.block ?? [] where location.name == "location" {
                    let place = NginxPlace(around: [location] + around)
                    if let length = place.match(path), length >= best?.length ?? 0 {
                        best = (place, length)
                    }
                    look([location] + around)
                }
            }
            look([chosen, http])
            if let place = best?.place, place.location.isGateways { return place }
        }
        return nil
    }
}
