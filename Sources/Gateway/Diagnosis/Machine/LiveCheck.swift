// The checks that need the running system.
//
// The checks connect without sending requests, except to the store of a bucket, because only a request tests the key.

import HTTPTypes
import SpoolgateCurl
package import SpoolgateExchange
package import SpoolgatePosix
package import SpoolgateSettings
import SpoolgateUploadProtocol
import SpoolgateUpstream

/// The check of settings on a running machine.
package struct LiveCheck {
    package private(set) var findings: [Finding] = []

    /// The longest wait for a response.
    private static let patience = Duration.seconds(10)
    /// The longest wait for a server with an `http` URL to refuse TLS.
    private static let tlsPatience = Duration.seconds(2)

    /// Runs the checks as this process's user.
    ///
    /// `nginx` should have read its files before the process gave up root's rights. `units` is nil if systemd does not
    /// know the units. `response` is the result of requesting the daemon's status. `paths` contains how the last large
    /// content of each route reached the spool, as reported by the daemon, and is nil if the daemon did not respond.
    package init(
        _ settings: Settings,
        as user: SystemUser,
        nginx: NginxProcesses,
        units: UnitsEvidence?,
        response: DaemonEvidence.Response,
        paths: [String: ContentPath?]?
    ) {
        let dumps = nginx.dumps
        let places = dumps.flatMap(\.gateways).filter { $0.leads(to: settings.listen) }
        findings += UnitsEvidence.findings(units)
        if case .unix(let path, _, _) = settings.listen {
            findings.append(SocketEvidence(path: path, workers: nginx.workers).finding)
        } else {
            findings.append(.skipped("socket", "not tested: listen is \(settings.listen.text)"))
        }
        let socket = settings.adminSocket
        findings.append(DaemonEvidence(socket: socket, response: response, run: units?.run).finding)
        findings.append(Self.admin(socket, nginx))
        findings += nginx.faults
        if nginx.faults.isEmpty || !dumps.isEmpty { findings += Self.nginx(places, dumps) }
        for place in places { look(atLogin: place, settings, nginx) }
        look(atSpool: settings, user)
        let routes = settings.routes.sorted { $0.key < $1.key }
        for (name, route) in routes {
            for target in route.upstream.targets {
                if case .http(let base) = target,
                    let loop = places.lazy.compactMap({ $0.loop(base, route: name) }).first
                {
                    findings.append(loop)
                } else {
                    findings.append(Self.connect(target, "upstream", name, route.upstream))
                }
            }
            connect(route.authorization, "authorizer", name)
        }
        connect(settings.events.webhook, "webhook", "events")
        findings.append(Self.module(nginx))
        for (name, route) in routes {
            // The outer optional is nil if the daemon did not respond.
            let path: ContentPath?? =
                route.spoolReceive == .off
                ? .off : settings.sharesSpool ? .shared : paths.map { $0[name] ?? nil }
            guard let path else {
                findings.append(.skipped("receive", "\(name): the daemon was not reached"))
                continue
            }
            let nginx = places.first { $0.route == name }?.lane
            findings.append(ReceiveEvidence(route: name, path: path, nginx: nginx).finding)
        }
    }

    /// Checks that nginx may connect to the admin socket.
    private static func admin(_ path: String, _ nginx: NginxProcesses) -> Finding {
        guard nginx.dumps.contains(where: { $0.servesAdmin(at: path) }) else {
            let why = "nginx has no location for the status page and the metrics (admin.conf)"
            return .skipped("admin", nginx.dumps.isEmpty ? NginxProcesses.noFiles : why)
        }
        let seen = SocketEvidence(isAdmin: true, path: path, workers: nginx.workers)
        return seen.isListening ? seen.finding : .skipped("admin", "no daemon listens on \(path)")
    }

    /// Checks the login of a location that passes uploads to this gateway.
    private mutating func look(
        atLogin place: NginxPlace,
        _ settings: Settings,
        _ nginx: NginxProcesses
    ) {
        let login = NginxLogin(at: place)
        var found = [login.finding(workers: nginx.workers)]
        if let route = settings.routes[place.route] {
            if route.anonymous == .refuse, route.authorization.url == nil {
                found.append(login.findingOfRefusal(route: place.route))
            }
            if !route.crossOrigin.origins.isEmpty {
                found.append(login.findingOfPreflight(route: place.route))
            }
        }
        findings += found.compactMap { $0 }
    }

    /// Returns the locations that pass uploads to this gateway, or a warning if there is none.
    private static func nginx(_ places: [NginxPlace], _ dumps: [NginxDump]) -> [Finding] {
        guard !dumps.isEmpty else { return [.skipped("nginx", NginxProcesses.noFiles)] }
        guard !places.isEmpty else {
            let fix = "\(Fix.snippet)  (in the server block for uploads)"
            return [.warning("nginx", "no nginx location passes uploads to this gateway", [fix])]
        }
        return places.map(\.found)
    }

    private mutating func look(atSpool settings: Settings, _ user: SystemUser) {
        let path = settings.spoolDirectory
        do throws(SystemError) {
            let space = try Directory(path: path).space()
            let sizes = settings.routes.values.map(\.limits.maxSize)
            let room = RoomEvidence(
                path: path,
                user: user.name,
                free: space.freeBytes,
                reserve: settings.spoolReserve,
                quota: settings.spoolQuota,
                largest: sizes.max() ?? 0
            )
            findings.append(room.finding)
        } catch {
            findings.append(
                .failure("spool", "\(error)", ["install -d -o \(user.name) -m 0700 \(path)"])
            )
        }
    }

    /// Connects to the server of an authorizer or the webhook, if any.
    private mutating func connect(_ service: ServiceSettings, _ kind: String, _ name: String) {
        guard let url = service.url, let settings = service.upstream else { return }
        findings.append(Self.connect(url.target, kind, name, settings, at: url.text))
    }

    /// Connects to a server, whose address in the settings is `address` or, if nil, the target.
    private static func connect(
        _ target: UpstreamTarget,
        _ kind: String,
        _ name: String,
        _ settings: UpstreamSettings,
        at address: String? = nil
    ) -> Finding {
        var seen = UpstreamEvidence(check: kind, name: name, target: address ?? "")
        seen.authorities = settings.tls.authorities
        switch target {
        case .http(let base):
            seen.target = address ?? base
            return connect(to: base, settings, &seen)
        case .store(let store):
            guard let store = store.onServer else {
                return .ok(kind, "\(name): \(store)")
            }
            seen.target = store.shortText
            let found = connect(to: store.endpoint, settings, &seen)
            // A response about the key also proves that a connection is possible.
            return found.level == .ok ? finding(store, kind, name, settings) : found
        case .unix(let path):
            seen.target = address ?? "unix:\(path)"
            seen.socket = path
            return connect(to: "http://localhost", settings, &seen)
        }
    }

    /// Connects without sending a request, and records the result in `seen`.
    ///
    /// For an `http` URL, also tries TLS, to find a server that expects TLS.
    private static func connect(
        to base: String,
        _ settings: UpstreamSettings,
        _ seen: inout UpstreamEvidence
    ) -> Finding {
        var request = ClientRequest(.head, base)
        request.socket = seen.socket
        request.onlyConnects = true
        request.timeout = min(settings.connectTimeout, patience)
        request.tls = settings.tls
        seen.fault = fault(of: request)
        if let late = seen.fault, late.isLate, base.hasPrefix("https://") {
            request.url = "http" + base.dropFirst(5)
            // If a connection without TLS succeeds, the server does not accept TLS.
            if fault(of: request) == nil { seen.fault?.tls = .silence }
        }
        if seen.fault == nil, seen.socket == nil, base.hasPrefix("http://") {
            request.url = "https" + base.dropFirst(4)
            request.timeout = tlsPatience
            // An untrusted certificate also proves that the server speaks TLS.
            let untrusted: [TLSProblem?] = [.expired, .notYetValid, .authority, .name, .distrust]
            seen.speaksTLS = fault(of: request).map { untrusted.contains($0.tls) } ?? true
        }
        return seen.finding
    }

    /// Sends a request and returns why the request failed, or nil.
    ///
    /// Closes the connection, because some servers accept only one at a time.
    private static func fault(of request: ClientRequest) -> ClientFault? {
        let transfer = ClientTransfer(request)
        transfer.run()
        return transfer.fault
    }

    private static func finding(
        _ store: any ServerStore,
        _ kind: String,
        _ name: String,
        _ settings: UpstreamSettings
    ) -> Finding {
        let place = "\(name): \(store)"
        var patient = settings
        patient.connectTimeout = min(settings.connectTimeout, Self.patience)
        patient.responseTimeout = Self.patience
        guard let fault = store.fault(patient) else {
            return .ok(kind, "\(place) accepts the key")
        }
        let parts = fault.split(separator: "; ", maxSplits: 1).map(String.init)
        let fix =
            parts.count > 1 ? parts[1] : "start the store, or name another one in spoolgate.yaml"
        return .failure(kind, "\(place): \(parts[0])", [fix])
    }

    private static func module(_ nginx: NginxProcesses) -> Finding {
        switch nginx.hasModule {
        case nil: .skipped("module", "no nginx process that this user may inspect (root may)")
        case true?: .ok("module", "nginx has loaded ngx_http_interim_module")
        case false?:
            .warning(
                "module",
                "nginx runs without ngx_http_interim_module: clients receive no 104",
                [Fix.module]
            )
        }
    }
}
