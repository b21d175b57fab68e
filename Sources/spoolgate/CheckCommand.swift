// `spoolgate check`: reads the settings as `serve` would, looks at what they name, and prints what
// differs from the defaults.

import ArgumentParser
import Gateway
import Glibc
import Posix
import Upstream

struct Check: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Check the settings and print what differs from the defaults.",
        discussion: "Changes nothing. Exits 0 if a daemon could serve with these settings, else 78."
    )

    @OptionGroup var options: SettingsOptions

    func run() throws {
        try spoolgate.run { () throws(CommandFailure) in
            let settings = try options.settings()
            let faults = settings.faults
            for fault in faults { printError(fault) }
            guard faults.isEmpty else {
                throw CommandFailure(
                    code: .configuration,
                    sentence: "\(options.file ?? "built-in defaults"): not usable as they are"
                )
            }
            print("\(options.file ?? "built-in defaults"): ok")
            // A route that only the file has differs by what it sets.
            var plain = Settings()
            for name in settings.routes.keys { plain.routes[name] = Route() }
            let defaults = Dictionary(
                uniqueKeysWithValues: plain.table.map { ($0.key, $0.value) }
            )
            for (key, value) in settings.table where defaults[key] != value {
                print("  \(key): \(value)")
            }
        }
    }
}

extension Settings {
    /// What in the file system does not fit the settings: one sentence each.
    fileprivate var faults: [String] {
        var faults: [String] = []
        if case .unix(let path, _, _) = listen {
            requireDirectory(of: path, for: "listen", &faults)
        }
        if let group = listen.group, getgrnam(group) == nil {
            faults.append("socket-group: there is no group '\(group)'")
        }
        requireDirectory(of: spoolDirectory, for: "spool.directory", &faults)
        for (name, route) in routes.sorted(by: { $0.key < $1.key }) {
            let tls = route.upstream
            for (key, file) in [
                ("tls.ca", tls.certificateAuthority), ("tls.certificate", tls.clientCertificate),
                ("tls.key", tls.clientKey),
            ] {
                requireFile(file, for: "routes.\(name).\(key)", &faults)
            }
            requireFiles(of: route.authorization, for: "routes.\(name).authorize", &faults)
            if let program = route.inspection.command.first, access(program, X_OK) != 0 {
                faults.append(
                    "routes.\(name).inspect.command: cannot run \(program): "
                        + String(cString: strerror(errno))
                )
            }
            faults += route.formFaults.map { "routes.\(name).\($0.key): \($0.sentence)" }
            for case .directory(let path) in route.upstream.targets
            where access(path, W_OK | X_OK) != 0 {
                faults.append(
                    "routes.\(name).upstream: cannot write to \(path): "
                        + String(cString: strerror(errno))
                )
            }
        }
        requireFiles(of: events.webhook, for: "events.webhook", &faults)
        if case .file(let path) = events.destination {
            requireDirectory(of: path, for: "events.to", &faults)
        }
        return faults
    }

    private func requireFiles(
        of service: ServiceSettings,
        for key: String,
        _ faults: inout [String]
    ) {
        requireFile(service.certificateAuthority, for: "\(key).tls.ca", &faults)
        requireFile(service.clientCertificate, for: "\(key).tls.certificate", &faults)
        requireFile(service.clientKey, for: "\(key).tls.key", &faults)
    }

    private func requireFile(_ file: String?, for key: String, _ faults: inout [String]) {
        guard let file, access(file, R_OK) != 0 else { return }
        faults.append("\(key): cannot read \(file): \(String(cString: strerror(errno)))")
    }

    private func requireDirectory(of path: String, for key: String, _ faults: inout [String]) {
        let parent = path.prefix(upTo: path.lastIndex(of: "/") ?? path.startIndex)
        guard !parent.isEmpty, access(String(parent), W_OK | X_OK) != 0,
            access(path, W_OK | X_OK) != 0
        else { return }
        faults.append("\(key): cannot write to \(parent): \(String(cString: strerror(errno)))")
    }
}
