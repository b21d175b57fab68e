// What of the settings can only be told where everything runs: that the socket takes nginx, that others are
// there, and that there is room.
//
// It connects and says nothing; a bucket is asked for a list, since only its store knows the key. The files that settings name are looked at elsewhere, before this.

import HTTPTypes
import SpoolgateCurl
package import SpoolgateExchange
package import SpoolgatePosix
package import SpoolgateSettings
import SpoolgateUploadProtocol
import SpoolgateUpstream

/// What the running machine tells of settings.
package struct LiveCheck {
    /// What was found.
    package private(set) var findings: [Finding] = []

    /// How long others are waited for.
    private static let patience = Duration.seconds(10)

    /// Looks, as the user whom this process is.
    ///
    /// - Parameters:
    ///   - settings: the settings.
    ///   - user: whom this process is.
    ///   - nginx: what runs of nginx; looked at before, where this process was root then.
    ///   - files: what it printed of its files then.
    ///   - paths: by route, which path the last large content took, as the daemon says; nil: none answered.
    package init(
        _ settings: Settings,
        as user: SystemUser,
        nginx: NginxProcesses,
        files: [NginxDump],
        paths: [String: ContentPath?]?
    ) {
        let loops = LoopSeen(settings.listen, files)
        look(atSocket: settings.listen, nginx)
        findings += Self.rivals(of: loops.places, files)
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
        if let units = UnitsSeen() {
            findings.append(units.stopping(within: settings.drainTimeout))
        } else {
            findings.append(.skipped("stopping", "systemd does not know spoolgate.service"))
        }
        findings.append(Self.module(nginx))
        look(atPaths: paths, settings, files, nginx)
    }

    /// Says of each route whether nginx writes its content into the spool.
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
                findings.append(.skipped("receive", "\(name): no daemon was reached"))
                continue
            }
            seen.nginx = LoopSeen(settings.listen, files).lane(ofRoute: name, nginx)
            findings.append(seen.finding)
        }
    }

    private mutating func look(atSocket address: ListenAddress, _ nginx: NginxProcesses) {
        switch address {
        case .unix(let path, _, _):
            findings.append(SocketSeen(path: path, workers: nginx.workers).finding)
        case .tcp, .inherited:
            findings.append(.skipped("socket", "it is \(address.text)"))
        }
    }

    /// Whether other locations take names from those that hand uploads to this gateway.
    private static func rivals(of places: [NginxPlace], _ files: [NginxDump]) -> [Finding] {
        guard !files.isEmpty else {
            return [.skipped("nginx", "no nginx whose files this user may read (root may)")]
        }
        guard !places.isEmpty else {
            return [.skipped("nginx", "no location hands uploads to this gateway")]
        }
        let faults = places.flatMap(\.rivalFaults)
        guard faults.isEmpty else { return faults }
        let shown = places.map { $0.location.arguments.joined(separator: " ") }
        return [.ok("nginx", "no other location takes names from \(shown.joined(separator: ", "))")]
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
        var request: ClientRequest
        let address: String
        switch target {
        case .directory(let path):
            findings.append(.ok(kind, "\(name): directory \(path)"))
            return
        case .http(let base):
            request = ClientRequest(.head, base)
            address = base
        case .bucket(let bucket):
            let place = "\(name): bucket \(bucket.name) at \(bucket.endpoint)"
            var patient = settings
            patient.connectTimeout = min(settings.connectTimeout, Self.patience)
            patient.responseTimeout = Self.patience
            guard let fault = bucket.fault(patient) else {
                findings.append(.ok(kind, "\(place) knows the key"))
                return
            }
            let parts = fault.split(separator: "; ", maxSplits: 1).map(String.init)
            let mend = parts.count > 1 ? parts[1] : "start the store, or name another one"
            findings.append(.failure(kind, "\(place): \(parts[0])", [mend]))
            return
        case .unix(let path):
            request = ClientRequest(.head, "http://localhost")
            request.socket = path
            address = "unix:\(path)"
        }
        request.onlyConnects = true
        request.timeout = min(settings.connectTimeout, Self.patience)
        request.certificateAuthority = settings.certificateAuthority
        let transfer = ClientTransfer(request)
        transfer.run()
        guard let fault = transfer.fault else {
            findings.append(.ok(kind, "\(name): \(address) takes connections"))
            return
        }
        findings.append(
            .failure(
                kind,
                "\(name): \(address): \(fault.reason)",
                ["start what listens there, or name another one in spoolgate.yaml"]
            )
        )
    }

    private static func inspection(
        _ program: String,
        _ name: String,
        _ user: SystemUser
    ) -> Finding {
        do throws(PathObstacle) {
            _ = try PathAccess.require(.search, to: program)
            return .ok("inspect", "\(name): user \(user.name) may run \(program)")
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
        case nil: .skipped("module", "no nginx that this user may look into")
        case true?: .ok("module", "nginx has ngx_http_interim_module")
        case false?:
            .warning("module", "nginx runs without ngx_http_interim_module: no 104", [Mend.module])
        }
    }
}
