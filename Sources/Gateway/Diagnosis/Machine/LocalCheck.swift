// The probe's checks of the local machine.
//
// The checks change nothing. Reading nginx's files requires root because `nginx -T` opens certificates and logs.

package import HTTPTypes
import SpoolgatePosix

/// The check of the local machine.
package struct LocalCheck {
    package private(set) var findings: [Finding] = []
    /// The settings that decide whether nginx writes content into the spool; nil if nginx's files were not read.
    package private(set) var lane: NginxLane?
    /// The default path of the admin socket, next to nginx's socket for uploads; nil if nginx's files name none.
    package private(set) var adminSocket: String?
    /// The location of the probed URL; nil if unknown.
    private var place: NginxPlace?

    /// Runs the checks for the URL of creations.
    ///
    /// `nginx` is the command `nginx -T`. The probe adds `fields`, such as a login, to each request.
    package init(of url: ProbeURL, nginx: [String], fields: HTTPFields = [:]) {
        let processes = NginxProcesses(of: nginx)
        switch SystemCommand.output(of: nginx) {
        case .failure(let fault):
            findings.append(Self.unread(fault.reason))
        case .success(let text):
            look(
                at: NginxDump(text, by: nginx),
                url,
                processes,
                ProbeLogin(fields)
            )
        }
        findings += UnitsSeen.findings(UnitsSeen())
    }

    /// Returns a failure for an error in nginx's files, or a warning if the files could not be read.
    static func unread(_ reason: String) -> Finding {
        guard reason.contains("[emerg]"), !reason.contains("ermission denied") else {
            return .warning("nginx", reason, ["run the probe as root, on the machine of nginx"])
        }
        // This file of the module's package is included although the module is not loaded.
        let fix =
            reason.contains(" in /usr/share/spoolgate/nginx/modules/")
            ? "apt install --reinstall libnginx-mod-http-interim" : "fix that line"
        return .failure(
            "nginx",
            reason,
            ["\(fix)  (until then nginx keeps its previous configuration)"]
        )
    }

    private mutating func look(
        at dump: NginxDump,
        _ url: ProbeURL,
        _ processes: NginxProcesses,
        _ login: ProbeLogin
    ) {
        guard let place = dump.locations(of: url.path, host: url.host, port: url.port).first else {
            let others = Set(dump.gateways.compactMap(\.location.arguments.last)).sorted()
            let fix =
                others.isEmpty
                ? Fix.snippet + "  (in the server block of \(url.host))"
                : "probe a URL below \(others.joined(separator: ", "))  (these locations accept uploads)"
            findings.append(
                .failure(
                    "nginx",
                    "no nginx location for \(url.path) has a fastcgi_pass",
                    [fix]
                )
            )
            return
        }
        self.place = place
        let faults = place.faults + place.rivalFaults
        var others = dump.findings(at: place, workers: processes.workers)
        if case .password(let name) = login {
            let unknown = NginxLogin(at: place).finding(forName: name, dump.passwordFile(at: place))
            if let unknown { others.append(unknown) }
        }
        findings += faults + others
        if (faults + others).allSatisfy({ $0.name != "nginx" }) {
            let path = place.location.arguments.joined(separator: " ")
            findings.append(.ok("nginx", "location \(path), \(place.location.place)"))
        }
        lane = dump.lane(at: place, processes)
        if let socket = dump.socket(of: place) {
            adminSocket = "\(PathAccess.parent(of: socket))/admin.sock"
            let seen = SocketSeen(path: socket, workers: processes.workers)
            findings.append(seen.finding)
        }
    }

    /// Adds the place in nginx's files to each fix, and removes the hint to use `--local`.
    package func placed(_ finding: Finding) -> Finding {
        var finding = finding
        finding.fixes.removeAll { $0 == Fix.local }
        guard let place, finding.name != "nginx" else { return finding }
        // A directive that is already present is left out, unless no other fix remains.
        let others = finding.fixes.filter { fix in
            Fix.directive(fix).flatMap { place.place(ofSame: $0) } == nil
        }
        let fixes = others.isEmpty ? finding.fixes : others
        finding.fixes = fixes.map { fix in
            place.place(of: fix).map { "\(fix)   \($0)" } ?? fix
        }
        return finding
    }
}
