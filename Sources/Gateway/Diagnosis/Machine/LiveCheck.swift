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
    /// The caller should obtain `nginx` and `files`, the result of its `dumps()`, before giving up root's
    /// rights. `units` is nil if systemd does not know the units. `answer` is the result of asking the daemon for its
    /// status. `paths` contains how the last large content of each route reached the spool, as reported by the daemon,
    /// and is nil if the daemon did not respond.
    package init(
        _ settings: Settings,
        as user: SystemUser,
        nginx: NginxProcesses,
        files: (files: [NginxDump], faults: [Finding]),
        units: UnitsSeen?,
        answer: DaemonSeen.Answer,
        paths: [String: ContentPath?]?
    ) {
        let (files, faults) = files
        let loops = LoopSeen(settings.listen, files)
        findings += UnitsSeen.findings(units)
        look(atSocket: settings.listen, nginx)
        let daemon = DaemonSeen(socket: settings.adminSocket, answer: answer, run: units?.run)
        findings.append(daemon.finding)
        look(atAdmin: settings.adminSocket, nginx, loops)
        findings += faults
        if faults.isEmpty || !files.isEmpty { findings += Self.rivals(of: loops.places, files) }
        look(atLogins: loops, settings, nginx)
        look(atSpool: settings, user)
        for (name, route) in settings.routes.sorted(by: { $0.key < $1.key }) {
            for target in route.upstream.targets {
                connect(target, "upstream", name, route.upstream, loops)
            }
            if let service = route.authorization.upstream {
                for target in service.targets {
                    connect(
                        target,
                        "authorizer",
                        name,
                        service,
                        loops,
                        at: route.authorization.url
                    )
                }
            }
            if let program = route.inspection.command.first {
                findings.append(Self.inspection(program, name, user))
            }
        }
        if let service = settings.events.webhook.upstream {
            for target in service.targets {
                connect(
                    target,
                    "webhook",
                    "events",
                    service,
                    loops,
                    at: settings.events.webhook.url
                )
            }
        }
        findings.append(Self.module(nginx))
        look(atPaths: paths, settings, files, nginx)
    }

    /// Checks whether nginx writes content into the spool.
    private mutating func look(
        atPaths paths: [String: ContentPath?]?,
        _ settings: Settings,
        _ files: [NginxDump],
        _ nginx: NginxProcesses
    ) {
        for (name, route) in settings.routes.sorted(by: { $0.key < $1.key }) {
            var seen = ReceiveSeen(route: name)
            if route.spoolReceive == .off {
                seen.path = .off
            } else if settings.sharesSpool {
                seen.path = .shared
            } else if let paths {
                seen.path = paths[name] ?? nil
            } else {
                findings.append(.skipped("receive", "\(name): the daemon was not reached"))
                continue
            }
            seen.nginx = LoopSeen(settings.listen, files).lane(ofRoute: name, nginx)
            findings.append(seen.finding)
        }
    }

    private mutating func look(
        atSocket address: ListenAddress,
        _ nginx: NginxProcesses
    ) {
        switch address {
        case .unix(let path, _, _):
            let seen = SocketSeen(path: path, workers: nginx.workers)
            findings.append(seen.finding)
        case .tcp, .inherited:
            findings.append(.skipped("socket", "not tested: listen is \(address.text)"))
        }
    }

    /// Checks that nginx may connect to the admin socket.
    private mutating func look(
        atAdmin path: String,
        _ nginx: NginxProcesses,
        _ loops: LoopSeen
    ) {
        // Another nginx, or one with several gateways, may use other daemons' sockets.
        let places = loops.files.flatMap { dump in
            let isAlone = !dump.gateways.isEmpty && dump.gateways.allSatisfy { loops.isOurs($0) }
            return dump.adminPlaces.map { (place: $0, socket: dump.socket(of: $0)) }
                .filter { isAlone || $0.socket == path }
        }
        guard let first = places.first else {
            let why =
                loops.files.isEmpty
                ? NginxProcesses.noFiles
                : "nginx has no location for the status page and the metrics (admin.conf)"
            findings.append(.skipped("admin", why))
            return
        }
        guard places.contains(where: { $0.socket == path }) else {
            let shown = first.place.location.arguments.joined(separator: " ")
            findings.append(
                .failure(
                    "admin",
                    "location \(shown) at \(first.place.location.place) passes requests to "
                        + "\(first.socket ?? "another address"), but the daemon's admin socket is \(path)",
                    ["fastcgi_pass unix:\(path);  (or change admin-listen in spoolgate.yaml)"]
                )
            )
            return
        }
        let seen = SocketSeen(.admin, path: path, workers: nginx.workers)
        guard seen.state == .listening else {
            findings.append(.skipped("admin", "no daemon listens on \(path)"))
            return
        }
        findings.append(seen.finding)
    }

    /// Checks the login and ports of the locations that pass uploads to this gateway.
    private mutating func look(
        atLogins loops: LoopSeen,
        _ settings: Settings,
        _ nginx: NginxProcesses
    ) {
        for dump in loops.files {
            for place in dump.gateways where loops.isOurs(place) {
                findings += dump.findings(at: place, workers: nginx.workers)
                guard let route = settings.routes[place.route] else { continue }
                let login = NginxLogin(at: place)
                if route.anonymous == .refuse, route.authorization.url == nil,
                    let refusal = login.findingOfRefusal(route: place.route)
                {
                    findings.append(refusal)
                }
                if !route.crossOrigin.origins.isEmpty,
                    let preflight = login.findingOfPreflight(route: place.route)
                {
                    findings.append(preflight)
                }
            }
        }
    }

    /// Returns failures for other locations that get requests meant for `places`.
    private static func rivals(of places: [NginxPlace], _ files: [NginxDump]) -> [Finding] {
        guard !files.isEmpty else {
            return [.skipped("nginx", NginxProcesses.noFiles)]
        }
        guard !places.isEmpty else {
            return [
                .warning(
                    "nginx",
                    "no nginx location passes uploads to this gateway",
                    ["\(Fix.snippet)  (in the server block for uploads)"]
                )
            ]
        }
        let faults = places.flatMap(\.rivalFaults)
        guard faults.isEmpty else { return faults }
        let shown = places.map { $0.location.arguments.joined(separator: " ") }
        return [.ok("nginx", "no other location takes paths from \(shown.joined(separator: ", "))")]
    }

    private mutating func look(atSpool settings: Settings, _ user: SystemUser) {
        let path = settings.spoolDirectory
        do throws(SystemError) {
            let space = try Directory(path: path).space()
            let sizes = settings.routes.values.map(\.limits.maxSize)
            let room = RoomSeen(
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

    private mutating func connect(
        _ target: UpstreamTarget,
        _ kind: String,
        _ name: String,
        _ settings: UpstreamSettings,
        _ loops: LoopSeen,
        at service: ServiceURL? = nil
    ) {
        let loop = loops.finding(target, kind, name, service: service?.requestTarget)
        if let loop {
            findings.append(loop)
            return
        }
        var seen = UpstreamSeen(check: kind, name: name, target: "")
        seen.authorities = settings.certificateAuthority
        switch target {
        case .directory(let path):
            findings.append(.ok(kind, "\(name): directory \(path)"))
        case .http(let base):
            seen.target = service?.text ?? base
            connect(to: base, settings, &seen)
            findings.append(seen.finding)
        case .bucket(let bucket):
            seen.target = "s3:\(bucket.endpoint)/\(bucket.name)"
            connect(to: bucket.endpoint, settings, &seen)
            // A response about the key also proves that a connection is possible.
            guard seen.finding.level == .ok else {
                findings.append(seen.finding)
                return
            }
            findings.append(Self.bucket(bucket, kind, name, settings))
        case .unix(let path):
            seen.target = service?.text ?? "unix:\(path)"
            seen.socket = path
            connect(to: "http://localhost", settings, &seen)
            findings.append(seen.finding)
        }
    }

    /// Connects without sending a request, and records the result in `seen`.
    ///
    /// For an `http` URL, also tries TLS, to find a server that expects TLS.
    private func connect(to base: String, _ settings: UpstreamSettings, _ seen: inout UpstreamSeen)
    {
        var request = ClientRequest(.head, base)
        request.socket = seen.socket
        request.onlyConnects = true
        request.timeout = min(settings.connectTimeout, Self.patience)
        request.certificateAuthority = settings.certificateAuthority
        request.clientCertificate = settings.clientCertificate
        request.clientKey = settings.clientKey
        seen.fault = Self.fault(of: request)
        if let fault = seen.fault, fault.isLate, base.hasPrefix("https://") {
            request.url = "http" + base.dropFirst(5)
            // If a connection without TLS succeeds, the server does not accept TLS.
            if Self.fault(of: request) == nil { seen.fault?.tls = .silence }
        }
        guard seen.fault == nil, seen.socket == nil, base.hasPrefix("http://") else { return }
        request.url = "https" + base.dropFirst(4)
        request.timeout = Self.tlsPatience
        // An untrusted certificate also proves that the server speaks TLS.
        seen.speaksTLS =
            Self.fault(of: request).map { fault in
                switch fault.tls {
                case .expired?, .notYetValid?, .authority?, .name?, .distrust?: true
                default: false
                }
            } ?? true
    }

    /// Sends a request and returns why the request failed, or nil.
    ///
    /// Closes the connection, because some servers accept only one at a time.
    private static func fault(of request: ClientRequest) -> ClientFault? {
        let transfer = ClientTransfer(request)
        transfer.run()
        return transfer.fault
    }

    private static func bucket(
        _ bucket: BucketAddress,
        _ kind: String,
        _ name: String,
        _ settings: UpstreamSettings
    ) -> Finding {
        let place = "\(name): bucket \(bucket.name) at \(bucket.endpoint)"
        var patient = settings
        patient.connectTimeout = min(settings.connectTimeout, Self.patience)
        patient.responseTimeout = Self.patience
        guard let fault = bucket.fault(patient) else {
            return .ok(kind, "\(place) accepts the key")
        }
        let parts = fault.split(separator: "; ", maxSplits: 1).map(String.init)
        let fix =
            parts.count > 1 ? parts[1] : "start the store, or name another one in spoolgate.yaml"
        return .failure(kind, "\(place): \(parts[0])", [fix])
    }

    private static func inspection(
        _ program: String,
        _ name: String,
        _ user: SystemUser
    ) -> Finding {
        do throws(PathObstacle) {
            _ = try PathAccess.require(.search, to: program)
            return .ok("inspect", "\(name): user \(user.name) can run \(program)")
        } catch {
            return .failure(
                "inspect",
                "\(name): user \(user.name) cannot run \(program)",
                ["chmod a+x \(program)"]
            )
        }
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
